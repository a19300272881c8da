"""The log of verification rounds: what calibration and replay are made from.

One line of JSON per round, appended whole; what a crash leaves of a last line is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from refork.errors import BadInput, DiskFull
from refork.jsonl import json_objects
from refork.plain import from_json
from refork.stats.results import Array
from refork.types import Json


@final
@dataclass(frozen=True, slots=True)
class Round:
    """One request's round: ``drafted`` of its drafts were verified, the first ``accepted`` of them kept.

    ``logits`` [g] are the confidence head's, before calibration. ``end_within``: the last kept draft ended
    the answer, so nothing is known of those behind it. ``schedule`` names who chose ``drafted`` (None:
    nobody, the whole block or what there was room for). ``step`` numbers the pass; ``tokens_in_batch`` (B)
    and ``seconds`` are that pass's, its draft included.
    """

    logits: tuple[float, ...]
    drafted: int
    accepted: int
    end_within: bool = False
    schedule: str | None = None
    anchor: int | None = None
    step: int | None = None
    tokens_in_batch: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.accepted <= self.drafted <= len(self.logits):
            raise BadInput(
                f"{self.accepted} of {self.drafted} verified drafts were kept, of {len(self.logits)} drafted",
                where="round",
            )
        if not np.isfinite(self.logits).all():
            raise BadInput("a confidence logit is not finite", where="round")

    def to_json(self) -> Json:
        """Fields that say something."""
        found: Json = {
            "logits": [round(x, 6) for x in self.logits], "drafted": self.drafted, "accepted": self.accepted,
        }  # fmt: skip
        if self.end_within:
            found["end_within"] = True
        rest = ("schedule", "anchor", "step", "tokens_in_batch", "seconds")
        return found | {k: v for k in rest if (v := getattr(self, k)) is not None}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """Many rounds as columns: ``logits`` [N, g]; the rest [N], -1 or NaN where nothing was recorded."""

    logits: Float[Array, "N g"]
    drafted: Int[Array, "N"]
    accepted: Int[Array, "N"]
    end_within: Bool[Array, "N"]
    schedule: tuple[str | None, ...]
    step: Int[Array, "N"]
    tokens_in_batch: Int[Array, "N"]
    seconds: Float[Array, "N"]

    def __len__(self) -> int:
        return len(self.drafted)

    @property
    def block(self) -> int:
        """g, the length of a drafted block."""
        return int(self.logits.shape[1])

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Rounds:
        """Columns of rounds of one block length.

        Raises:
            BadInput: no round, or blocks of several lengths.
        """
        if not rounds:
            raise BadInput("there are no rounds", hint="refork speculate bench --rounds FILE records some")
        sizes = {len(r.logits) for r in rounds}
        if len(sizes) > 1:
            raise BadInput(f"the rounds have blocks of {sorted(sizes)} drafts", hint="one drafter per log")
        number = np.int64

        def column(name: str) -> Array:
            values = [getattr(r, name) for r in rounds]
            return np.array([-1 if v is None else v for v in values], dtype=number)

        return cls(
            logits=np.array([r.logits for r in rounds], dtype=np.float64),
            drafted=column("drafted"),
            accepted=column("accepted"),
            end_within=np.array([r.end_within for r in rounds], dtype=bool),
            schedule=tuple(r.schedule for r in rounds),
            step=column("step"),
            tokens_in_batch=column("tokens_in_batch"),
            seconds=np.array([np.nan if r.seconds is None else r.seconds for r in rounds], dtype=np.float64),
        )

    def prefix_mask(self) -> Bool[np.ndarray, "N g"]:
        """y[n, k]: the first k drafts were all kept."""
        return np.asarray(np.arange(self.block) < self.accepted[:, None])

    def known(self) -> Bool[np.ndarray, "N g"]:
        """Where y is an outcome: verified, or behind a rejection; not behind an end of the answer.

        What lies behind a rejection was not kept, whatever would have been verified of it.
        """
        places = np.arange(self.block)
        rejected = np.where(self.accepted < self.drafted, self.block, self.drafted)
        last = np.where(self.end_within, self.accepted, rejected)
        return np.asarray(places < last[:, None])

    def cut_by_schedule(self) -> int:
        """How many rounds a schedule shortened by what it saw in them."""
        by_rule = np.array([s is not None and s != "fixed" for s in self.schedule], dtype=bool)
        return int((by_rule & (self.drafted < self.block)).sum())


@final
class RoundLog:
    """A log file of rounds that several runs may append to, one after the other or side by side."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def append(self, rounds: Iterable[Round]) -> int:
        """Write rounds as whole lines, in one call to the system; how many there were.

        Raises:
            DiskFull: the storage refused them.
        """
        lines = [json.dumps(r.to_json(), separators=(",", ":")) for r in rounds]
        if not lines:
            return 0
        data = ("\n".join(lines) + "\n").encode()
        try:
            # Not write-only: the last byte is read back below.
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    data = b"\n" + data  # close what a crash left open; reading passes over it
                # A disk that fills up may take a part without an error.
                if os.write(handle, data) != len(data):
                    raise OSError("only a part was written")
            finally:
                os.close(handle)
        except OSError as error:
            raise DiskFull(f"rounds could not be written: {error}", where=str(self.path)) from error
        return len(lines)


def read_rounds(path: Path) -> tuple[list[Round], int]:
    """The rounds of a log, and how many lines were cut off by crashes.

    Raises:
        BadInput: no such file, or a whole line that is no round.
    """
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    found: list[Round] = []
    torn = 0
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            if _torn(line):
                torn += 1
                continue
            for _, body in json_objects([line], str(path)):
                try:
                    found.append(from_json(Round, body, f"{path}:{number}"))
                except BadInput as error:
                    raise BadInput(
                        error.what,
                        where=f"{path}:{number}",
                        hint="refork speculate bench --rounds writes such logs",
                    ) from error
    return found, torn


def _torn(line: str) -> bool:
    """A line that begins as a round does and does not end as one."""
    bare = line.strip()
    # A crash may have cut the line inside its first key, so no more of the key is asked for than is there.
    return bool(bare) and bare.startswith('{"logits"'[: len(bare)]) and not bare.endswith("}")
