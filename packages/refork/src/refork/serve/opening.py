"""From what the command line names to what a server serves: models, drafters, pools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from refork.errors import BadInput, CannotDo
from refork.progress import Progress, silent
from refork.registry import part

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy
    from refork.serve.additions import BlockSpeculator
    from refork.serve.serve import Model

_NAMED = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)


@final
@dataclass(frozen=True, slots=True)
class Drafting:
    """A drafter's folder and how its drafts are used.

    ``rule``: coupled gives the tokens of plain decoding, so that a seed gives the same answer with and
    without it; rejection keeps more drafts and gives only their distribution. ``cost`` and ``calibration``
    are files of ``refork speculate profile`` and ``calibrate``: with a cost table, drafts are verified as the
    load allows.
    """

    folder: Path
    rule: Literal["coupled", "rejection"] = "coupled"
    cost: Path | None = None
    calibration: Path | None = None


@final
@dataclass(frozen=True, slots=True)
class Opened:
    """A model, the name it is served under, and a line about it."""

    name: str
    model: Model
    about: str


def named(item: str) -> tuple[str | None, str]:
    """``NAME=WHAT`` as name and what; without a name, None."""
    found = _NAMED.fullmatch(item)
    return (found[1], found[2]) if found else (None, item)


def open_model(
    item: str, width: int, drafting: Drafting | None = None, progress: Progress = silent
) -> Opened:
    """The model of ``[NAME=]SPEC``: a folder, ``organism:NAME``, or any policy's specification.

    A local model is served token by token, ``width`` answers at a time; any other policy as a chat model.

    Raises:
        BadInput: no such model or drafter.
        CannotDo: a drafter for a model that does not run here.
    """
    from refork.chat import PolicyChat
    from refork.policies.local import LocalPolicy
    from refork.policies.open import open_policy, spell

    name, spec = named(item)
    full = f"hf:{spec}" if Path(spec).is_dir() else spell(spec, progress)
    policy = open_policy(full, on_wait=lambda why: None)
    called = name or (spec.partition(":")[2] if spec.startswith("organism:") else policy.card.name)
    if isinstance(policy, LocalPolicy):
        return _local(called, spec, policy, width, drafting)
    if drafting is not None:
        raise CannotDo(
            f"{called!r} does not run in this process, so no drafter can draft for it",
            hint="--drafter goes with a local model",
        )
    return Opened(called, PolicyChat(policy), f"{spec}, a chat model with settings of its own")


def _local(name: str, spec: str, policy: LocalPolicy, width: int, drafting: Drafting | None) -> Opened:
    from refork.serve.engine_model import EngineModel

    speculator = None if drafting is None else open_drafter(drafting, policy)
    about = f"{spec}, {width} answers at a time"
    if drafting is not None and speculator is not None:
        load = "as the load allows" if drafting.cost is not None else "always"
        about += f", drafter {drafting.folder} ({drafting.rule}, {speculator.block} tokens, {load})"
    return Opened(name, EngineModel(policy, width=width, speculator=speculator), about)


def open_drafter(drafting: Drafting, policy: LocalPolicy) -> BlockSpeculator:
    """The speculator of a drafter's folder.

    Raises:
        BadInput: there is no drafter, or no table or calibration.
        Mismatch: it was trained for another model.
        CannotDo: its layout is not one that this server drafts with.
    """
    made: BlockSpeculator = part("serve.drafter")(
        drafting.folder,
        policy,
        rule=drafting.rule,
        cost=drafting.cost,
        calibration=drafting.calibration,
    )
    return made


def distinct(opened: list[Opened]) -> dict[str, Model]:
    """Models by name. Raises BadInput where there is none, or two have one name."""
    if not opened:
        raise BadInput("there is nothing to serve", hint="--model DIR, or --pool pool.toml --worker NAME")
    names = [one.name for one in opened]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two models are called {name!r}", hint="name them: --model NAME=SPEC")
    return {one.name: one.model for one in opened}
