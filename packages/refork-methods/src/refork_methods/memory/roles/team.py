"""Who does what in a memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from refork.chat import ChatModel
from refork_methods.memory.codifier import Codifier, SkeletonCodifier
from refork_methods.memory.roles.by_model import ModelCodifier, ModelManager, ModelReflector, ModelScreener
from refork_methods.memory.roles.by_rule import RuleManager, RuleReflector, RuleScreener
from refork_methods.memory.roles.lesson import Manager, Reflector, Screener


@dataclass(frozen=True, slots=True)
class Roles:
    """The four roles of a memory; by rule unless another is given. The repairer belongs to the guard."""

    reflector: Reflector = field(default_factory=RuleReflector)
    screener: Screener = field(default_factory=RuleScreener)
    manager: Manager = field(default_factory=RuleManager)
    codifier: Codifier = field(default_factory=SkeletonCodifier)


def roles_by(model: ChatModel) -> Roles:
    """All four roles by one chat model."""
    return Roles(ModelReflector(model), ModelScreener(model), ModelManager(model), ModelCodifier(model))
