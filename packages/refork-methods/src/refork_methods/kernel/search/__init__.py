"""Search for a faster version of a kernel: written, built, checked, timed, diagnosed, and written from again.

Source: arXiv 2606.26453 for the method; its code and constants are not published.
"""

from refork_methods.kernel.search.arms import ArmTest, compare_arms, read_arms
from refork_methods.kernel.search.chatting import ChatWriter
from refork_methods.kernel.search.model import (
    Evaluator,
    Feedback,
    KernelSearchSettings,
    Observation,
    Proposal,
    Trial,
    Writer,
    WriterState,
)
from refork_methods.kernel.search.rewriting import RewriteWriter
from refork_methods.kernel.search.run import SearchResult, run_search

__all__ = [
    "ArmTest",
    "ChatWriter",
    "Evaluator",
    "Feedback",
    "KernelSearchSettings",
    "Observation",
    "Proposal",
    "RewriteWriter",
    "SearchResult",
    "Trial",
    "Writer",
    "WriterState",
    "compare_arms",
    "read_arms",
    "run_search",
]
