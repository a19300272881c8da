"""A search's record: every step is done once, and what is recorded is read instead of done again.

So a search that was stopped anywhere goes on to the same end, bit for bit, as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from refork.errors import Mismatch
from refork.plain import content_hash
from refork.types import Json
from refork_methods.journal import Journal

EVENTS = "events.jsonl"


class Stopped(Exception):
    """The user asked to stop before a step that is not recorded yet."""


@final
class Record:
    """Steps by their keys, in the order in which they were done. Without a folder it lives in memory.

    Raises: Mismatch where a line of the record was changed.
    """

    def __init__(self, folder: Path | None = None) -> None:
        file = None if folder is None else folder / EVENTS
        if file is not None and not file.exists():
            self._journal = Journal.create(file, noun="record of a search")
        else:
            self._journal = Journal(file, noun="record of a search")
        self._steps: dict[str, Json] = {}
        for entry in self._journal:
            self._steps[str(entry.body["key"])] = entry.body["step"]
        self.stopped: Callable[[], bool] = lambda: False

    def __contains__(self, key: str) -> bool:
        return key in self._steps

    def __len__(self) -> int:
        return len(self._steps)

    def items(self) -> Iterator[tuple[str, Json]]:
        """Keys and what is recorded under them, oldest first."""
        return iter(self._steps.items())

    def get(self, key: str) -> Json | None:
        """What is recorded under a key."""
        return self._steps.get(key)

    def once(self, key: str, make: Callable[[], Json]) -> Json:
        """What is recorded under a key, else what ``make`` returns, recorded before it is used.

        Raises: Stopped before a step that would be new.
        """
        if key in self._steps:
            return self._steps[key]
        if self.stopped():
            raise Stopped
        entry = self._journal.append(key.rpartition("/")[2], {"key": key, "step": make()})
        # As read back from the file, so that a resumed search sees the same values.
        self._steps[key] = entry.body["step"]
        return self._steps[key]

    def agree(self, key: str, report: Json) -> None:
        """Record what a search is, or check that it is the same. Raises Mismatch naming what differs."""
        before = self.once(key, lambda: report)
        if content_hash(before) == content_hash(report):
            return
        differ = [
            f"{name} (was {before.get(name)!r:.120}, now {report.get(name)!r:.120})"
            for name in sorted(before.keys() | report.keys())
            if before.get(name) != report.get(name)
        ]
        raise Mismatch(
            "this folder holds another search; it differs in: " + "; ".join(differ),
            hint="use `refork theory resume`, or another --out for a new search",
        )

    @property
    def digest(self) -> str:
        """Digest of all steps; the times at which they were done do not count."""
        return content_hash(list(self._steps.items()))
