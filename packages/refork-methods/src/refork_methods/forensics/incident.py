"""What happened: who did what where, who says so, and how often it happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from refork.plain import content_hash
from refork.policies.base import PolicyCard
from refork.tree.score import Producer
from refork.types import Json
from refork_methods.forensics.arm import Arm


@dataclass(frozen=True, slots=True)
class Target:
    """The action in question, and the grader that says whether a rollout took it.

    A model that grades names its weights in ``grader.config["weights"]``.
    """

    action: str
    grader: Producer
    description: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """One rollout in which a model did something, and how often it does it when nothing is changed.

    ``environment`` is a JSON document: all that the subject's behaviour may depend on (messages,
    files, settings). ``tree`` is the tree file, ``nodes`` the rollout's nodes in it. ``base`` is the
    unchanged arm of independent rollouts; None while none was run. The card and the environment in
    one exact version are the subject.
    """

    name: str
    model: PolicyCard
    environment: Json
    target: Target
    tree: str | None = None
    nodes: tuple[str, ...] = ()
    base: Arm | None = None
    question: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def subject(self) -> str:
        """The weights digest of the model, else its name."""
        return self.model.weights or self.model.name

    @property
    def environment_id(self) -> str:
        """Digest of the environment."""
        return content_hash(self.environment)

    @property
    def same_checkpoint(self) -> bool | None:
        """Whether judge and subject are one checkpoint; None where the grader names no weights."""
        weights = self.target.grader.config.get("weights")
        if weights is None:
            return True if self.target.grader.name == self.model.name else None
        return weights in (self.model.weights, self.model.name)
