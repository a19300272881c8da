"""What several commands share: opening things, printing JSON, live progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ramify.core.errors import BadInput

if TYPE_CHECKING:
    from ramify.core.judge import Judge
    from ramify.core.policy.base import Sampling
    from ramify.core.tree.node import Trajectory
    from ramify.core.world.base import World


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def existing(path: Path) -> Path:
    """A file that must be there."""
    if not path.exists():
        raise BadInput("there is no such file", where=str(path))
    return path


def world_for(walk: Trajectory, spec: str | None) -> World | None:
    """The world a command names, else the one the trajectory was recorded in; ``none`` for neither."""
    from ramify.core.world.open import open_world

    if spec == "none":
        return None
    chosen = spec or walk.root.extra.get("world")
    return open_world(str(chosen)) if chosen else None


def judge_for(pattern: str | None) -> Judge | None:
    """A judge that looks for a pattern in the last turn, if a pattern was given."""
    from ramify.core.judge import MatchJudge

    return MatchJudge(pattern) if pattern else None


def settings_for(base: Sampling, items: list[str]) -> Sampling | None:
    """Settings with ``name=value`` items changed; None where there are none, so the record's stand."""
    from ramify.core.policy.base import Sampling
    from ramify.core.run.recipe import Law, resolve

    if not items:
        return None
    law = base.to_json() | {k: v for k, v in resolve(Law, overrides=items, environment={}) if v is not None}
    given = {item.partition("=")[0] for item in items}
    return Sampling.from_json(base.to_json() | {k: v for k, v in law.items() if k in given})
