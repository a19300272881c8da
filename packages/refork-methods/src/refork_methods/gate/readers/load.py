"""Records of several files and folders, as a command names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from refork.errors import BadInput
from refork_methods.gate.model import VERIFY
from refork_methods.gate.prices import Rates
from refork_methods.gate.readers.jsonl import read_jsonl
from refork_methods.gate.readers.reports import PATTERN, read_reports
from refork_methods.gate.readers.suite import OnError
from refork_methods.gate.readers.swebench import read_swebench
from refork_methods.gate.records import Record, completed, joined


def load_records(
    paths: Sequence[Path],
    *,
    outcomes: Sequence[str] = (),
    thresholds: Mapping[str, float] | None = None,
    rates: Rates | None = None,
    pattern: str = PATTERN,
    oracle: str = VERIFY,
    on_error: OnError = "unknown",
) -> tuple[Record, ...]:
    """JSON lines by file, test reports by folder, put together; ``outcomes`` join SWE-bench reports.

    An outcome is ``PATH``, or ``CANDIDATE=PATH``; without a name the candidates are 0, 1, ... in order.

    Raises: BadInput as the readers, or for a file that is not there.
    """
    found: list[Record] = []
    for path in paths:
        if not path.exists():
            raise BadInput("there is no such file", where=str(path))
        if path.is_dir():
            found += read_reports(path, pattern, oracle=oracle, on_error=on_error, rates=rates)
        else:
            found += read_jsonl(path, thresholds, rates)
    records = completed(found)
    if not outcomes:
        return records
    runs = []
    for number, item in enumerate(outcomes):
        name, named, rest = item.partition("=")
        path = Path(rest if named else item)
        if not path.exists():
            raise BadInput("there is no such file", where=str(path))
        runs.append((name if named else str(number), path))
    return joined(records, read_swebench(runs))


def amounts(items: Sequence[str], what: str) -> dict[str, float]:
    """``NAME=NUMBER`` items. Raises BadInput for one that is not, or a name that is there twice."""
    found: dict[str, float] = {}
    for item in items:
        name, _, text = item.partition("=")
        try:
            number = float(text)
        except ValueError as error:
            raise BadInput(f"{item!r} is no {what}", hint=f"--{what} NAME=NUMBER") from error
        if not name or name in found:
            raise BadInput(f"{what} {name!r} is given twice or has no name")
        found[name] = number
    return found
