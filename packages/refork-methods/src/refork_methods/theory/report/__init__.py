"""Pictures of theories: the leaderboard over rounds, the dial, the utility of ratings."""

from refork_methods.theory.report.dial import DialCurve, dial_curve, dial_figure
from refork_methods.theory.report.draw import draw_pictures
from refork_methods.theory.report.leaderboard import leaderboard_figure
from refork_methods.theory.report.utility import UtilityCurve, utility_curve, utility_figure

__all__ = [
    "DialCurve",
    "UtilityCurve",
    "dial_curve",
    "dial_figure",
    "draw_pictures",
    "leaderboard_figure",
    "utility_curve",
    "utility_figure",
]
