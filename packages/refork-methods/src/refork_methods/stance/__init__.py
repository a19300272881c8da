"""Does thinking move a refuse-or-comply outcome, where along it, and does a defence do more than shift it?"""

from refork_methods.stance.agreement import cohen_kappa, fleiss_kappa
from refork_methods.stance.cuts import judge_cuts
from refork_methods.stance.frontier import flips, frontier
from refork_methods.stance.guards import Panel, RegexGuard, asr_orr, hard_labels, panel_of, soft_labels
from refork_methods.stance.marker import Marker, find_thinking, marker_of
from refork_methods.stance.prompts import draw_rollouts, plant_cases, recorded_cases
from refork_methods.stance.replay import causal_cuts, stance_trace
from refork_methods.stance.resample import continuation_variance
from refork_methods.stance.segments import oscillations, stance_segments
from refork_methods.stance.shift import shift_area, shifted
from refork_methods.stance.variance import total_variance, variance_at

__all__ = [
    "Marker",
    "Panel",
    "RegexGuard",
    "asr_orr",
    "causal_cuts",
    "cohen_kappa",
    "continuation_variance",
    "draw_rollouts",
    "find_thinking",
    "fleiss_kappa",
    "flips",
    "frontier",
    "hard_labels",
    "judge_cuts",
    "marker_of",
    "oscillations",
    "panel_of",
    "plant_cases",
    "recorded_cases",
    "shift_area",
    "shifted",
    "soft_labels",
    "stance_segments",
    "stance_trace",
    "total_variance",
    "variance_at",
]
