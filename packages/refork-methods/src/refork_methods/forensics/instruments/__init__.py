"""Ten instruments that look into a rollout, each a pure function and an adapter on the tree.

Source: arXiv:2606.26071, appendix E.
"""

from refork_methods.forensics.instruments.audit_notes import AuditNotes, edit_noticed, stated_motives
from refork_methods.forensics.instruments.logprob_prefill import logprob_prefill
from refork_methods.forensics.instruments.questions import (
    follow_up,
    forced_choice,
    read_fields,
    reflective_prefill,
    self_report,
    third_person,
    user_turn_sample,
)
from refork_methods.forensics.instruments.reading import AskModel, Patterns, Reader
from refork_methods.forensics.instruments.redraw_distribution import chain_rates, judge_quality
from refork_methods.forensics.instruments.repeated_resampling import repeated_resample
from refork_methods.forensics.instruments.replies import Replies
from refork_methods.forensics.instruments.sentence_resampling import (
    Profile,
    martingale,
    sentence_resample,
)
from refork_methods.forensics.instruments.trace_grading import ScaleJudge, trace_grading

__all__ = [
    "AskModel",
    "AuditNotes",
    "Patterns",
    "Profile",
    "Reader",
    "Replies",
    "ScaleJudge",
    "chain_rates",
    "edit_noticed",
    "follow_up",
    "forced_choice",
    "judge_quality",
    "logprob_prefill",
    "martingale",
    "read_fields",
    "reflective_prefill",
    "repeated_resample",
    "self_report",
    "sentence_resample",
    "stated_motives",
    "third_person",
    "trace_grading",
    "user_turn_sample",
]
