"""Which worker acts: pools, outcome tables, a selection head, workflows. Source: arXiv:2606.21228.

What needs torch (a selection head, its training) is imported from its own module.
"""

from refork_methods.route.collect import Swaps, label_by_fork
from refork_methods.route.decision import Decision, DecisionLog, RoutedChat, decide, routed_policy
from refork_methods.route.frontier import frontier_report
from refork_methods.route.pool import Bill, Price, Worker, WorkerPool, read_pool
from refork_methods.route.runs import label_alone, record_runs
from refork_methods.route.table import Outcome, OutcomeTable, read_table, write_table

__all__ = [
    "Bill",
    "Decision",
    "DecisionLog",
    "Outcome",
    "OutcomeTable",
    "Price",
    "RoutedChat",
    "Swaps",
    "Worker",
    "WorkerPool",
    "decide",
    "frontier_report",
    "label_alone",
    "label_by_fork",
    "read_pool",
    "read_table",
    "record_runs",
    "routed_policy",
    "write_table",
]
