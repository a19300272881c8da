"""Probes of the first thinking token: what hidden states tell of an outcome before any thinking."""

from ramify.examine.probe.area import Area
from ramify.examine.probe.ceiling import Ceiling, auroc_ceiling, beta_ceiling, estimate_ceiling
from ramify.examine.probe.fit import FirstTokenProbe, FittedProbe, load_probe
from ramify.examine.probe.on_tree import position_states, thinking_states, write_scores
from ramify.examine.probe.rows import Rows, read_rows
from ramify.examine.probe.scores import Evaluation
from ramify.examine.probe.separability import SeparabilityCurve, resample_trace, separability_curve
from ramify.examine.probe.sweep import PromptSweep, prompt_sweep
from ramify.examine.probe.text_control import text_control

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
    "beta_ceiling",
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
