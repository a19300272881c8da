"""Does thinking move a refuse-or-comply outcome, where along it, and does a defence do more than shift it?"""

from ramify.examine.stance.agreement import cohen_kappa, fleiss_kappa
from ramify.examine.stance.cuts import judge_cuts
from ramify.examine.stance.frontier import flips, frontier
from ramify.examine.stance.guards import Panel, RegexGuard, asr_orr, hard_labels, panel_of, soft_labels
from ramify.examine.stance.marker import Marker, find_thinking, marker_of
from ramify.examine.stance.prompts import draw_rollouts, plant_cases, recorded_cases
from ramify.examine.stance.replay import causal_cuts, stance_trace
from ramify.examine.stance.resample import continuation_variance
from ramify.examine.stance.segments import oscillations, stance_segments
from ramify.examine.stance.shift import shift_area, shift_curve, shifted
from ramify.examine.stance.variance import total_variance, variance_at

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
    "shift_curve",
    "shifted",
    "soft_labels",
    "stance_segments",
    "stance_trace",
    "total_variance",
    "variance_at",
]
