"""Recovery: what teaches a policy to turn back, and whether a data set still does."""

from refork_methods.recovery.audit import recovery_audit
from refork_methods.recovery.distillation import build_distillation_set
from refork_methods.recovery.on_tree import read_traces
from refork_methods.recovery.traces import state_key

__all__ = ["build_distillation_set", "read_traces", "recovery_audit", "state_key"]
