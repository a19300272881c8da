"""Probes of the first thinking token: what hidden states tell of an outcome before any thinking."""

from refork.examine.probe.area import Area
from refork.examine.probe.ceiling import Ceiling, auroc_ceiling, beta_ceiling, estimate_ceiling
from refork.examine.probe.fit import FirstTokenProbe, FittedProbe, load_probe
from refork.examine.probe.on_tree import position_states, thinking_states, write_scores
from refork.examine.probe.rows import Rows, read_rows
from refork.examine.probe.scores import Evaluation
from refork.examine.probe.separability import SeparabilityCurve, resample_trace, separability_curve
from refork.examine.probe.sweep import PromptSweep, prompt_sweep
from refork.examine.probe.text_control import text_control

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
