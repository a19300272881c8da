"""The recorded rollout tree."""

from refork.core.tree.finding import Finding
from refork.core.tree.load import Loaded
from refork.core.tree.node import Draft, Node, Point, Step, Trajectory, node_id
from refork.core.tree.score import DrawRecord, ForkRecord, Producer, Retirement, Score
from refork.core.tree.scoring import Retired
from refork.core.tree.stats import TreeStats
from refork.core.tree.tree import Tree

__all__ = [
    "Draft",
    "DrawRecord",
    "Finding",
    "ForkRecord",
    "Loaded",
    "Node",
    "Point",
    "Producer",
    "Retired",
    "Retirement",
    "Score",
    "Step",
    "Trajectory",
    "Tree",
    "TreeStats",
    "node_id",
]
