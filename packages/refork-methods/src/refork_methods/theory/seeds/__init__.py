"""Theories as text, ready to be run in the sandbox, edited, or put beside a user's own."""

from __future__ import annotations

from importlib.resources import files

from refork.errors import BadInput
from refork_methods.theory.theory_file import Theory


def seed_names() -> tuple[str, ...]:
    """Names of the theories that come along."""
    found = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def seed_theory(name: str) -> Theory:
    """One of the theories that come along. Raises BadInput for another name."""
    if name not in seed_names():
        raise BadInput(f"no theory {name!r} comes along", hint=f"one of {', '.join(seed_names())}")
    return Theory.from_yaml((files(__name__) / f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml")
