"""The audit of a run's folder: does the log replay, who judged when, what was erased, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from refork.errors import BadInput, Mismatch, ReplayDiverged
from refork.plain import canonical, from_json, to_json
from refork.tree import Retirement, Tree
from refork.types import Json
from refork_methods.evolve.archive import EXPAND, MEASURE, Archive, fold
from refork_methods.evolve.erase import selective_erasure
from refork_methods.evolve.folder import TREE, open_journal, read_facts
from refork_methods.evolve.history import JudgeHistory, judge_history
from refork_methods.evolve.on_tree import live_outcomes, slot_producer, would_retire
from refork_methods.evolve.pictures import stringency_figure
from refork_methods.evolve.records import EvaluatorSlot
from refork_methods.evolve.replay import replay
from refork_methods.evolve.search import Settings
from refork_methods.journal import Journal

AUDIT: Final = "audit.json"
LEDGER: Final = "ledger.jsonl"
STRINGENCY: Final = "stringency.svg"


@final
@dataclass(frozen=True, slots=True)
class Costs:
    """What a run spent: edits that were tried and that were valid, outcomes, and re-scored artifacts."""

    edits: int
    children: int
    outcomes: int
    rescored: int
    anchor_queries: int


@final
@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found. ``replays``: the log is what its own answers make again, entry by entry.

    ``tree``: what the tree shows and the log does not, or the other way round; empty where they agree, None
    where there is no tree.
    """

    folder: Path
    world: str
    settings: Settings
    replays: bool
    diverged: str | None
    tree: tuple[str, ...] | None
    archive: Archive
    history: JudgeHistory
    costs: Costs

    @property
    def sound(self) -> bool:
        """Whether nothing was found amiss."""
        return self.replays and not self.tree

    def to_json(self) -> Json:
        """Plain JSON."""
        archive, history = self.archive, self.history
        ended = archive.endpoint(self.settings.gate.eps) if archive.records else None
        return {
            "folder": str(self.folder),
            "world": self.world,
            "settings": to_json(self.settings),
            "ended": archive.ended,
            "replays": self.replays,
            "diverged": self.diverged,
            "tree": None if self.tree is None else list(self.tree),
            "outcomes": archive.outcomes,
            "valid": len(archive.records),
            "erased": len(archive.erased),
            "erased_over_budget": len(archive.erased) / self.settings.budget,
            "costs": to_json(self.costs),
            "judges": [to_json(one) for one in history.tenures],
            "examinations": [
                {
                    "slot": one.slot, "at": one.at, "rule": one.decision.rule,
                    "best_belief": one.decision.by_best_belief, "paired": one.decision.by_paired,
                    "challengers": len(one.decision.challengers),
                    "barred": sum(judged.barred is not None for judged in one.decision.challengers),
                }
                for one in history.examinations
            ],
            "endpoint": None if ended is None else to_json(ended),
        }  # fmt: skip


def audit(out: Path) -> Audit:
    """The audit of a folder; writes nothing.

    Raises:
        BadInput: it is not the folder of a run.
        Mismatch: its event log was altered in the file itself.
    """
    facts, journal = read_facts(out), open_journal(out)
    events = [(entry.kind, entry.body) for entry in journal]
    settings = from_json(Settings, facts["settings"], str(out))
    archive, diverged = _again(journal)
    history = judge_history(events)
    measured = [body for kind, body in events if kind == MEASURE]
    edits = [body for kind, body in events if kind == EXPAND]
    costs = Costs(
        len(edits),
        sum(body["workspace"] is not None for body in edits),
        len(measured),
        sum(bool(body["cached"]) for body in measured),
        history.anchor_queries,
    )
    tree = None if not (out / TREE).exists() else _compared(out, archive)
    return Audit(
        out, str(facts["world"]), settings, diverged is None, diverged, tree, archive, history, costs
    )


def _again(journal: Journal) -> tuple[Archive, str | None]:
    """The archive by replay; by its events alone, with the reason, where it does not replay."""
    try:
        return replay(journal), None
    except (ReplayDiverged, Mismatch) as error:
        # A log that does not replay is read all the same: an audit says what it holds.
        return fold((entry.kind, entry.body) for entry in journal), str(error)


def _compared(out: Path, archive: Archive) -> tuple[str, ...]:
    """How the tree's live verdicts differ from the log's valid records."""
    with Tree.open(out / TREE, "r") as tree:
        places = {str(node.extra["artifact"]): node.id for node in tree.walk() if "artifact" in node.extra}
        seen = live_outcomes(tree, archive.cells, places)
    valid = {(record.artifact, record.cell): record.outcome for record in archive.records}
    stale = len(seen.keys() - valid.keys())
    missing = len(valid.keys() - seen.keys())
    other = sum(seen[key] != valid[key] for key in seen.keys() & valid.keys())
    found = []
    if stale:
        found.append(f"{stale} erased verdicts are still visible on the tree: refork evolve resume")
    if missing:
        found.append(
            f"{missing} valid verdicts are not on the tree: refork evolve resume, or they were erased"
        )
    if other:
        found.append(f"{other} verdicts on the tree say otherwise than the log")
    return tuple(found)


def write_audit(result: Audit, out: Path) -> list[Path]:
    """Write an audit as JSON, the ledger of erased records, and the picture; the files."""
    out.mkdir(parents=True, exist_ok=True)
    history = result.history
    ledger = "".join(canonical(to_json(record)) + "\n" for record in result.archive.erased)
    stringency = stringency_figure(history)
    texts: Mapping[str, str | None] = {
        AUDIT: json.dumps(result.to_json(), indent=2, ensure_ascii=False) + "\n",
        LEDGER: ledger,
        STRINGENCY: None if stringency is None else stringency.svg(),
    }
    written = []
    for name, text in texts.items():
        if text is not None:
            (out / name).write_text(text, encoding="utf-8")
            written.append(out / name)
    return written


@final
@dataclass(frozen=True, slots=True)
class WouldErase:
    """What goes out of sight where a slot's judge is dismissed: its verdicts, and scores that read them.

    ``scores``: by name, verdicts and derived ones; ``producers``: the judge's first, then its readers.
    ``rescore``: cached artifacts to judge again; ``remaining``: valid records that stay.
    """

    slot: str
    judge: str
    epoch: int
    scores: dict[str, int]
    producers: tuple[str, ...]
    verdicts: int
    rescore: int
    remaining: int


def would_erase_slot(out: Path, slot: str) -> WouldErase:
    """What the dismissal of a slot's judge would take out of sight; writes nothing.

    Raises: BadInput for a slot that the run does not have, or a folder without a tree.
    """
    archive, held = _slot(out, slot)
    split = selective_erasure(
        archive.records,
        # No successor is named: erasure looks at the epoch, and the next one is enough.
        [one.replaced("-") if one.name == slot else one for one in archive.slots.values()],
    )
    with Tree.open(out / TREE, "r") as tree:
        lost = would_retire(tree, slot_producer(held).id)
    return WouldErase(
        slot, held.judge, held.epoch, dict(lost.scores), lost.producers, len(split.erased),
        len(split.to_rescore), len(split.remaining),
    )  # fmt: skip


def erase_slot(out: Path, slot: str, reason: str) -> Retirement:
    """Dismiss the judge of a slot of a finished run by hand: on the tree, where readers are; the log stays.

    Raises:
        BadInput: as :func:`would_erase_slot`.
        Mismatch: the run goes on, and its judge with it.
    """
    archive, held = _slot(out, slot)
    if not archive.ended:
        raise Mismatch(
            "the run has not ended: its judges change at checkpoints only", where=str(out),
            hint="refork evolve resume first, or look with --dry-run",
        )  # fmt: skip
    with Tree.open(out / TREE) as tree:
        producer = tree.add_producer(slot_producer(held))
        return tree.retire(producer, reason)


def _slot(out: Path, slot: str) -> tuple[Archive, EvaluatorSlot]:
    read_facts(out)
    archive = fold((entry.kind, entry.body) for entry in open_journal(out))
    if slot not in archive.slots:
        raise BadInput(f"the run has no slot {slot!r}", hint=f"slots: {', '.join(sorted(archive.slots))}")
    return archive, archive.slots[slot]
