"""The scripted world by its options, as ``refork evolve run --world scripted`` opens it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

from refork.errors import BadInput
from refork.plain import canonical, from_json, to_json
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.promote import Gate
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.scripted.coevolution import (
    SLOT,
    ScriptedEditor,
    ScriptedEvaluator,
    ScriptedExaminer,
    Shop,
    World,
)
from refork_methods.evolve.scripted.papers import JudgeRule, calibrated
from refork_methods.evolve.search import Runtime, Settings

First: TypeAlias = Literal["glossy", "strict"]
#: The sheet's run. The slack: an incumbent was chosen on the same anchor, so its share there is a lucky one.
SETTINGS: Final = Settings(2048, first=64, gate=Gate("best_belief", anchor_slack=0.05))


@final
@dataclass(frozen=True, slots=True)
class Options:
    """``first``: a judge that loves gloss, or one that refuses nearly all; the rest as :class:`World`."""

    first: First = "glossy"
    seed: int = 0
    traps: bool = True
    replace: bool = True
    verified: float = 0.6
    challengers: int = 16
    effort: float = 0.5
    polish: float = 0.7


@final
@dataclass(frozen=True, slots=True)
class Opened:
    """What a search needs of a world, and the text of an artifact."""

    workspace: Json
    slots: tuple[EvaluatorSlot, ...]
    runtime: Runtime
    text: Callable[[Archive, Cell, str], str]


def first_judge(name: First) -> JudgeRule:
    """``glossy`` accepts four in ten human papers and weighs gloss three times quality; ``strict`` 8 %."""
    known = {"glossy": (3.0, 0.5, 0.4), "strict": (0.0, 0.0, 0.08)}
    if name not in known:
        raise BadInput(f"no first judge {name!r}", hint=f"one of {', '.join(known)}")
    return calibrated(*known[name])


def open_world(**options: Any) -> Opened:
    """The world; raises BadInput for options that it does not have or that cannot be."""
    told = from_json(Options, options, "world scripted")
    unknown = options.keys() - to_json(told).keys()
    if unknown:
        raise BadInput(f"the scripted world has no option {min(unknown)!r}", hint=", ".join(to_json(told)))
    rest = {key: value for key, value in to_json(told).items() if key != "first"}
    world = World(first_judge(told.first), **rest)
    shop = Shop(world)

    def text(archive: Archive, cell: Cell, key: str) -> str:
        if cell.slot is None:
            return f"{cell.role} on {cell.task}"
        paper = shop.paper(archive, key)
        # What a reader sees; the hidden quality stays hidden.
        shown = {"seen": paper.observed, "gloss": paper.gloss, "length": paper.length}
        return canonical({name: round(float(column[0]), 3) for name, column in shown.items()})

    runtime = Runtime(ScriptedEditor(shop), ScriptedEvaluator(shop), ScriptedExaminer(shop))
    return Opened(world.workspace, (EvaluatorSlot(SLOT, world.judge.id),), runtime, text)
