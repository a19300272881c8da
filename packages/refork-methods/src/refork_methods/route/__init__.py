"""Which worker acts: pools, outcome tables, a selection head, workflows. Source: arXiv:2606.21228.

What needs torch (a selection head, its training) is imported from its own module.
"""

from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_methods.route.table import Outcome, OutcomeTable

__all__ = ["Outcome", "OutcomeTable", "Price", "Worker", "WorkerPool"]
