"""What refining does to a candidate, counted on recorded refinement steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import final

from refork.decide import BetaRate
from refork.errors import BadInput
from refork.types import Json
from refork_methods.gate.model import Kernel
from refork_methods.gate.records import Record


@final
@dataclass(frozen=True, slots=True)
class StepCounts:
    """Refinement steps from ``wrong`` candidates, ``fixed`` of them, and from ``right`` ones, ``broken``.

    ``unchanged`` steps left the artifact as it was; ``lost`` steps have an end without an outcome or lack
    their neighbour.
    """

    wrong: int
    fixed: int
    right: int
    broken: int
    unchanged: int
    lost: int

    @property
    def pairs(self) -> int:
        """Steps that were counted."""
        return self.wrong + self.right

    def kernel(self) -> Kernel:
        """Posterior rates under the uniform prior."""
        return Kernel(BetaRate(self.fixed, self.wrong), BetaRate(self.broken, self.right))

    def to_json(self) -> Json:
        """Plain counts."""
        return {
            "wrong": self.wrong, "fixed": self.fixed, "right": self.right, "broken": self.broken,
            "unchanged": self.unchanged, "lost": self.lost,
        }  # fmt: skip


def fit_kernel(steps: Iterable[Record], changed_only: bool = False) -> Kernel:
    """The refine kernel of recorded steps: posterior rates of fixing a wrong and breaking a right candidate.

    A step leads from step s to s + 1 of one draw. ``changed_only`` counts those whose artifact changed, by
    SHA-256.

    Raises: BadInput for no step with both outcomes, or a step without an artifact where it must have changed.
    Source: arXiv:2606.24453.
    """
    counts = count_steps(steps, changed_only=changed_only)
    if not counts.pairs:
        raise BadInput(
            f"no refinement step has both outcomes ({counts.lost} lack one)",
            hint='number the steps of a draw: "step": 0, 1, ...; separate draws are no refinements',
        )
    return counts.kernel()


def count_steps(records: Iterable[Record], *, changed_only: bool = False) -> StepCounts:
    """Count what every refinement step did. Raises BadInput for a step without an artifact, where needed."""
    found = {"wrong": 0, "fixed": 0, "right": 0, "broken": 0}
    unchanged = lost = 0
    for chain in chains(records):
        for before, then in pairwise(chain):
            if before.step is None or then.step is None:
                continue
            if then.step != before.step + 1 or before.right is None or then.right is None:
                lost += 1
                continue
            known = before.artifact is not None and then.artifact is not None
            if changed_only and not known:
                raise BadInput(
                    "whether this step changed the candidate cannot be told without its artifact",
                    where=then.place,
                    hint='"patch": the text, or "artifact": its SHA-256',
                )
            if known and before.artifact == then.artifact:
                unchanged += 1
                if changed_only:
                    continue
            found["right" if before.right else "wrong"] += 1
            found["broken"] += before.right and not then.right
            found["fixed"] += not before.right and then.right
    return StepCounts(**found, unchanged=unchanged, lost=lost)


def chains(records: Iterable[Record]) -> list[tuple[Record, ...]]:
    """The candidates of every draw, by step; draws in the order in which they first appear."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.instance, record.candidate), []).append(record)
    return [tuple(sorted(chain, key=lambda r: r.step or 0)) for chain in found.values()]
