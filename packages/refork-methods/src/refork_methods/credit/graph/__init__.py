"""Graph credit: equal states of a group merged into a graph, an action credited for what its edge gained."""

from refork_methods.credit.graph.advantages import CreditSettings, step_advantages
from refork_methods.credit.graph.collisions import collision_report
from refork_methods.credit.graph.on_tree import graph_advantages
from refork_methods.credit.graph.state_graph import StateGraph

__all__ = ["CreditSettings", "StateGraph", "collision_report", "graph_advantages", "step_advantages"]
