"""Probes of the first thinking token: what hidden states tell of an outcome before any thinking."""

from refork_methods.probe.area import Area
from refork_methods.probe.ceiling import Ceiling, auroc_ceiling, estimate_ceiling
from refork_methods.probe.fit import FirstTokenProbe, FittedProbe, load_probe
from refork_methods.probe.on_tree import position_states, thinking_states, write_scores
from refork_methods.probe.rows import Rows, read_rows
from refork_methods.probe.scores import Evaluation
from refork_methods.probe.separability import SeparabilityCurve, resample_trace, separability_curve
from refork_methods.probe.sweep import PromptSweep, prompt_sweep
from refork_methods.probe.text_control import text_control

__all__ = [
    "Area",
    "Ceiling",
    "Evaluation",
    "FirstTokenProbe",
    "FittedProbe",
    "PromptSweep",
    "Rows",
    "SeparabilityCurve",
    "auroc_ceiling",
    "estimate_ceiling",
    "load_probe",
    "position_states",
    "prompt_sweep",
    "read_rows",
    "resample_trace",
    "separability_curve",
    "text_control",
    "thinking_states",
    "write_scores",
]
