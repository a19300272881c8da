"""How the model loop is run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, final

from refork.errors import BadInput
from refork.types import Json


@final
@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Limits of a run.

    ``max_turns``: answers of the model in all, the final one included. ``notices``: repeated calls after
    which the final turn is forced. ``context``: tokens of one question. ``observation``: characters of one
    tool's answer. ``locations``: at most so many. ``calls``: "native" sends the tools' schemas, "text"
    does not (the prompt says them), "auto" sends them unless the model refuses. ``synthesis`` False takes the
    final turn away, to measure what it is worth: a run without an answer then ends empty.

    Raises: BadInput for settings that make no sense.
    """

    max_turns: int = 20
    notices: int = 3
    context: int = 24_000
    observation: int = 12_000
    locations: int = 5
    calls: Literal["auto", "native", "text"] = "auto"
    synthesis: bool = True

    def __post_init__(self) -> None:
        if min(self.max_turns, self.notices, self.locations) < 1:
            raise BadInput("turns, notices and locations are at least 1")
        if self.context < 500 or self.observation < 500:
            raise BadInput("a context below 500 tokens, or an answer below 500 characters, shows nothing")
        if self.calls not in ("auto", "native", "text"):
            raise BadInput(f"calls are auto, native or text, not {self.calls!r}")

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> LoopSettings:
        """Inverse of :meth:`to_json`. Raises BadInput for unknown fields."""
        try:
            return cls(**data)
        except TypeError as error:
            raise BadInput(f"these are no settings of the loop: {error}") from error
