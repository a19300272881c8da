"""Perturbations: a world that fails as real services do, at a known rate and on the actions that matter.

Source: arXiv 2606.24597 names the four kinds and their use on weak spots; how they look, and that they can be
enforced on the answer instead of asked of the model, is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork.stats import unpaired_difference
from refork.types import Json
from refork.worlds.environment import ActionObservation
from refork_methods.simulate.actions import name_of
from refork_methods.simulate.control.base import Moment

Kind: TypeAlias = Literal["error", "pages", "partial", "failure"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_ERRORS = ("error: 503 service unavailable , try again", "error: 429 too many requests , wait and try again",
           "error: 504 timed out , try again")  # fmt: skip
_FAILED = "error: 504 timed out"
_PAGE = re.compile(r"\(page (\d+) of (\d+) : repeat the action for the next one\)")
_TOLD = {
    "error": "The service is down for this action: answer with an API error such as 503, and change nothing.",
    "pages": "Answer this action with the first page of its result only, and say how many pages there are.",
    "partial": "Answer this action with a part of its result only, and say that it is partial.",
    "failure": "One part of this action fails, the others succeed: say which.",
}


@final
@dataclass(frozen=True, slots=True)
class Perturb:
    """Perturbs a share of the answers, drawn from the episode's own noise.

    Args:
        kinds: which perturbations; one of them is drawn per perturbed answer, among those that fit its text.
        rate: chance that an answer is perturbed.
        actions: names of tools or commands that it is aimed at; empty: all.
        spare: names that are never perturbed; those that end an episode by default.
        how: ``enforce`` changes the answer, ``instruct`` tells the model to, ``both`` does both (an answer
            that the told kind does not fit stays as the model gave it).
        page: lines (or rows) a page has.

    The model is shown perturbed answers as its history; whether it keeps to them (an action that met an error
    did nothing) depends on the model.

    Raises:
        BadInput: an unknown kind, a rate outside [0, 1], or pages without a line.
    """

    kinds: tuple[Kind, ...] = KINDS
    rate: float = 0.2
    actions: tuple[str, ...] = ()
    spare: tuple[str, ...] = ("submit", "answer")
    how: Literal["enforce", "instruct", "both"] = "enforce"
    page: int = 3

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown or not self.kinds:
            what = (
                f"there is no perturbation {unknown[0]!r}" if unknown else "no kind of perturbation is given"
            )
            raise BadInput(what, where="perturb", hint="kinds: " + ", ".join(KINDS))
        if not 0 <= self.rate <= 1:
            raise BadInput(f"the rate is {self.rate}; it must be in [0, 1]", where="perturb")
        if self.page < 1 or self.how not in ("enforce", "instruct", "both"):
            raise BadInput("page is at least 1; how is enforce, instruct or both", where="perturb")

    @property
    def name(self) -> str:
        """``perturb``."""
        return "perturb"

    def to_json(self) -> Json:
        """All settings."""
        return {
            "control": self.name, "kinds": list(self.kinds), "rate": self.rate, "actions": list(self.actions),
            "spare": list(self.spare), "how": self.how, "page": self.page,
        }  # fmt: skip

    # -- what is done -------------------------------------------------------------------------

    def instruction(self, at: Moment) -> str:
        """What the model is told about this answer."""
        if self.how == "enforce" or not self._aimed(at.action) or not self._struck(at.noise):
            return ""
        # The next page is cut from a whole answer, so nothing else may be asked for.
        if self.how == "both" and _next_page(at.history, at.action) is not None:
            return ""
        return _TOLD[self._pick(self.kinds, at.noise)]

    def after(self, at: Moment, predicted: str) -> tuple[str, Json | None]:
        """The answer, perturbed where it is this turn's lot; its kind, and whether it was enforced."""
        text, kind = self._perturbed(at.history, at.action, predicted, at.noise)
        if kind is not None:
            return text, {"kind": kind, "how": "enforced"}
        if not self.instruction(at):
            return text, None
        return text, {"kind": self._pick(self.kinds, at.noise), "how": "instructed"}

    def _aimed(self, action: str) -> bool:
        name = name_of(action)
        return name not in self.spare and (not self.actions or name in self.actions)

    def _struck(self, noise: NoiseKey) -> bool:
        return _numbers(noise)[0] < self.rate

    def _pick(self, kinds: Sequence[Kind], noise: NoiseKey) -> Kind:
        # The product can round up to the number of kinds.
        return kinds[min(int(_numbers(noise)[1] * len(kinds)), len(kinds) - 1)]

    def _perturbed(
        self, seen: Sequence[ActionObservation], action: str, predicted: str, noise: NoiseKey
    ) -> tuple[str, Kind | None]:
        """The answer and what was enforced on it."""
        if self.how == "instruct" or not self._aimed(action):
            return predicted, None
        begun = _next_page(seen, action)
        if begun is not None:
            return _paged(predicted, self.page, begun), "pages"
        if not self._struck(noise):
            return predicted, None
        whole = _Parts.of(predicted)
        count = len(whole.items)
        enough = {"error": True, "pages": count > self.page}
        # What the model was told is what is done, or nothing: before the answer it is not known what fits.
        kinds = self.kinds if self.how == "enforce" else (self._pick(self.kinds, noise),)
        fitting = [kind for kind in kinds if enough.get(kind, count > 1)]
        if not fitting:
            return predicted, None
        kind, where = self._pick(fitting, noise), _numbers(noise)[2]
        if kind == "error":
            return whole.error(_ERRORS[int(where * len(_ERRORS))]), kind
        if kind == "pages":
            return _paged(predicted, self.page, 1), kind
        if kind == "partial":
            kept = 1 + int(where * (count - 1))
            return whole.having(whole.items[:kept], f"(partial result : {kept} of {count})"), kind
        lost = int(where * count)
        items = [whole.failed if place == lost else item for place, item in enumerate(whole.items)]
        return whole.having(items), kind


# Instruction and answer of one turn ask several times, and must be told the same.
@lru_cache(maxsize=4096)
def _numbers(noise: NoiseKey) -> tuple[float, float, float]:
    """Whether, what and where: three numbers in (0, 1) of a turn."""
    # A stream of its own: with the answer's noise, what is struck would go with what was said.
    own = replace(noise, stream=stream_of("perturb", noise.stream))
    first, second, third = uniforms([own], 3)[0]
    return float(first), float(second), float(third)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An answer as the things it lists: lines, or the rows of the one list of a JSON object."""

    items: list[Any]
    body: dict[str, Any] | None = None
    key: str = ""

    @classmethod
    def of(cls, text: str) -> _Parts:
        try:
            body = json.loads(text) if text.startswith("{") else None
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return cls(text.split("\n"))
        lists = [name for name, value in body.items() if isinstance(value, list)]
        return cls(body[lists[0]], body, lists[0]) if len(lists) == 1 else cls([text], body)

    @property
    def failed(self) -> Any:
        """What stands in place of a part that failed."""
        return _FAILED if self.body is None else {"error": _FAILED.removeprefix("error: ")}

    def error(self, text: str) -> str:
        """An answer that is an error alone."""
        return text if self.body is None else _json({"error": text.removeprefix("error: ")})

    def having(self, items: Sequence[Any], note: str | None = None) -> str:
        """The answer with these parts, and a note."""
        if self.body is None:
            return "\n".join([*items, *([note] if note else [])])
        return _json({**self.body, self.key: list(items)} | ({"note": note} if note else {}))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _next_page(seen: Sequence[ActionObservation], action: str) -> int | None:
    """The page that is due of an action that is answered page by page; None where none is."""
    last = next((text for done, text in reversed(seen) if done == action), None)
    found = _PAGE.search(last) if last is not None else None
    if found is None:
        return None
    page, pages = int(found[1]), int(found[2])
    return page + 1 if page < pages else None


def _paged(text: str, size: int, page: int) -> str:
    """One page of an answer, with its number."""
    whole = _Parts.of(text)
    pages = max(-(-len(whole.items) // size), 1)
    # The answer may be shorter now than when its first page was shown.
    page = min(page, pages)
    shown = whole.items[(page - 1) * size : page * size]
    return whole.having(shown, f"(page {page} of {pages} : repeat the action for the next one)")


# -- weak spots -------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class WeakSpot:
    """An action whose episodes fail more often than the others.

    ``excess`` is the failure rate of the ``uses`` episodes that use it minus that of the rest, ``low`` and
    ``high`` its 95 % interval. It is no cause: hard tasks may simply need the action.
    """

    name: str
    uses: int
    failures: int
    excess: float
    low: float
    high: float


def weak_spots(
    episodes: Sequence[Sequence[str]], failed: Sequence[bool], *, least: int = 5
) -> list[WeakSpot]:
    """Actions by how much more often episodes that use them fail, the surest first.

    ``episodes`` are the action texts of each; ``least`` episodes must use an action, and as many must not.
    Aim with ``Perturb(actions=tuple(spot.name for spot in weak_spots(...) if spot.low > 0))``.

    Raises:
        BadInput: not one outcome per episode.
    """
    if len(episodes) != len(failed):
        raise BadInput(f"{len(episodes)} episodes and {len(failed)} outcomes", where="weak spots")
    used = [frozenset(name_of(action) for action in actions) for actions in episodes]
    found = []
    for name in sorted({name for names in used for name in names}):
        mine = [float(bad) for bad, names in zip(failed, used, strict=True) if name in names]
        rest = [float(bad) for bad, names in zip(failed, used, strict=True) if name not in names]
        if min(len(mine), len(rest)) < least:
            continue
        gap = _difference(rest, mine)
        found.append(WeakSpot(name, len(mine), int(sum(mine)), *gap))
    return sorted(found, key=lambda spot: (-spot.low, spot.name))


def _difference(rest: Collection[float], mine: Collection[float]) -> tuple[float, float, float]:
    interval = unpaired_difference(np.array(list(rest)), np.array(list(mine))).interval
    return interval.estimate, interval.low, interval.high
