"""The recorded rollout tree."""

from ramify.core.tree.finding import Finding
from ramify.core.tree.load import Loaded
from ramify.core.tree.node import Draft, Node, Point, Step, Trajectory, node_id
from ramify.core.tree.score import DrawRecord, ForkRecord, Producer, Retirement, Score
from ramify.core.tree.scoring import Retired
from ramify.core.tree.stats import TreeStats
from ramify.core.tree.tree import Tree

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
