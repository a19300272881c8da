"""What a search may do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.kernel.mcts import SearchSettings
from refork_methods.kernel.reward import MOST
from refork_methods.kernel.search.model import Feedback

#: For budgets of tens: a node is worth the best below it, and little weight is on what was seldom tried. The
#: means and the weight of .7 that the tree has by itself want hundreds.
TREE = SearchSettings(explore=0.2, value="max")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSearchSettings:
    """``evaluations``: kernels that are tried, the original not counted; ``batch`` of them from one node.

    ``search``: ``mcts``, or ``hill``, which goes on from the fastest alone. ``unguided``: the share of tries
    that follow no advice. ``plateau``: tries without a new best after which a note says so. ``finalists``:
    how many are timed again at the end. ``most``: the speed-up that earns the whole reward. ``tree``: of
    ``mcts``.

    Source: arXiv 2606.26453 for two candidates per iteration; the share of unguided moves is ours.
    """

    evaluations: int = 40
    search: Literal["mcts", "hill"] = "mcts"
    feedback: Feedback = "diagnosed"
    seed: int = 0
    batch: int = 2
    unguided: float = 0.15
    plateau: int = 8
    finalists: int = 3
    most: float = MOST
    tree: SearchSettings = TREE

    def __post_init__(self) -> None:
        where = "kernel search"
        if self.search not in ("mcts", "hill"):
            raise BadInput(f"search {self.search!r}", where=where, hint="mcts or hill")
        if self.feedback not in ("diagnosed", "raw", "none"):
            raise BadInput(f"feedback {self.feedback!r}", where=where, hint="diagnosed, raw or none")
        for name in ("evaluations", "batch", "plateau", "finalists"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}", where=where, hint="1 or more")
        if self.seed < 0 or not 0 <= self.unguided <= 1 or self.most <= 1:
            raise BadInput(
                f"seed {self.seed}, unguided {self.unguided}, most {self.most}",
                where=where,
                hint="a seed of 0 or more, a share from 0 to 1, most above 1",
            )

    def to_json(self) -> Json:
        """Plain JSON."""
        return asdict(self)
