"""Constraint pinning: rules that survive whatever compacts the conversation. Source: arXiv:2606.22528."""

from refork.compaction import approximate_tokens
from refork_methods.pin.buffer import MessageDicts, MessageShape, PinCheck, PinnedBuffer, parts_with_text
from refork_methods.pin.channel import OperatorChannel, SignedChange, changed, next_version, signed_change
from refork_methods.pin.compactor import PinnedCompactor, require
from refork_methods.pin.constraint import Constraint, RuleKind
from refork_methods.pin.policy_file import change_line, check_unique, read_changes, read_policy
from refork_methods.pin.strategies import (
    HeadTail,
    Hierarchical,
    Summarise,
    Truncate,
    policy_tokens,
)

__all__ = [
    "Constraint",
    "HeadTail",
    "Hierarchical",
    "MessageDicts",
    "MessageShape",
    "OperatorChannel",
    "PinCheck",
    "PinnedBuffer",
    "PinnedCompactor",
    "RuleKind",
    "SignedChange",
    "Summarise",
    "Truncate",
    "approximate_tokens",
    "change_line",
    "changed",
    "check_unique",
    "next_version",
    "parts_with_text",
    "policy_tokens",
    "read_changes",
    "read_policy",
    "require",
    "signed_change",
]
