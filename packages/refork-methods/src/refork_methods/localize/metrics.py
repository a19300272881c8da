"""How near a case file came to the gold diff: files, chunks and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.stats import Interval, mean_interval, wilson
from refork.types import Json
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.gold import Gold, GoldSpan, gold_spans

KS = (1, 3, 5, 10)


@final
@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of one case; None where the diff gives nothing to measure against.

    ``acc[k]``: 1 if every gold file is among the first k files named. ``recall[k]``: the share that is.
    ``chunk_recall``: share of gold chunks that a span overlaps; ``chunk_precision``: share of spans that
    overlap one, 0 for an empty case; ``iou``: lines in both over lines in either; ``complete``: chunk recall
    is 1.
    """

    acc: dict[int, float | None]
    recall: dict[int, float | None]
    chunk_recall: float | None
    chunk_precision: float | None
    iou: float | None
    complete: float | None

    def to_json(self) -> Json:
        """Plain fields; cut-offs as text keys."""
        told = asdict(self)
        return told | {name: {str(k): v for k, v in told[name].items()} for name in ("acc", "recall")}


def score_locations(case: CaseFile, diff: str | Gold) -> Scores:
    """Score a case against a gold diff.

    Raises: BadInput for a diff that is none.
    Source: arXiv:2606.24820; acc@k and recall@k are the standard definitions, the span formulas ours.
    """
    gold = gold_spans(diff) if isinstance(diff, str) else diff
    wanted = set(gold.files)
    recall: dict[int, float | None] = {
        k: len(wanted & set(case.files[:k])) / len(wanted) if wanted else None for k in KS
    }
    acc = {k: None if share is None else float(share == 1.0) for k, share in recall.items()}
    if not gold.spans:
        return Scores(acc, recall, None, None, None, None)
    hit = [any(_overlap(one, chunk) for one in case.locations) for chunk in gold.spans]
    useful = [any(_overlap(one, chunk) for chunk in gold.spans) for one in case.locations]
    found = float(np.mean(hit))
    return Scores(
        acc,
        recall,
        found,
        float(np.mean(useful)) if useful else 0.0,
        _line_iou(case.locations, gold),
        float(all(hit)),
    )


def _overlap(one: Location, chunk: GoldSpan) -> bool:
    return one.path == chunk.path and one.start <= chunk.end and chunk.start <= one.end


def _line_iou(picked: Sequence[Location], gold: Gold) -> float:
    mine = {(one.path, n) for one in picked for n in range(one.start, one.end + 1)}
    true = {(one.path, n) for one in gold.spans for n in range(one.start, one.end + 1)}
    # The diff has a span here, so the union is not empty.
    return len(mine & true) / len(mine | true)


def mean_scores(rows: Sequence[Scores]) -> dict[str, tuple[Interval | None, int]]:
    """Mean of each figure over cases with its interval, and how many cases could be measured.

    Wilson intervals for rates of yes and no, t intervals for shares (None below two cases).
    Raises: BadInput for no cases.
    """
    if not rows:
        raise BadInput("there is no case to average")
    table: dict[str, list[float | None]] = {}
    for row in rows:
        for name in ("acc", "recall"):
            for k, value in getattr(row, name).items():
                table.setdefault(f"{name}@{k}", []).append(value)
        for name in ("chunk_recall", "chunk_precision", "iou", "complete"):
            table.setdefault(name, []).append(getattr(row, name))
    told: dict[str, tuple[Interval | None, int]] = {}
    for name, column in table.items():
        values = [value for value in column if value is not None]
        if name.startswith("acc") or name == "complete":
            told[name] = (wilson(int(sum(values)), len(values)) if values else None, len(values))
        else:
            told[name] = (mean_interval(np.array(values)) if len(values) > 1 else None, len(values))
    return told
