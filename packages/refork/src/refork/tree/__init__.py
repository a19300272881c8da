"""The recorded rollout tree."""

from refork.tree.load import Loaded
from refork.tree.node import NewNode, Node, Point, Step, Trajectory, node_id
from refork.tree.score import DrawRecord, ForkRecord, Producer, Retirement, Score
from refork.tree.scoring import Retired
from refork.tree.stats import TreeStats
from refork.tree.tree import Tree
from refork.tree.verify import Finding

__all__ = [
    "DrawRecord",
    "Finding",
    "ForkRecord",
    "Loaded",
    "NewNode",
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
