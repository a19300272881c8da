"""Pictures of theories: the leaderboard over rounds, the dial, the utility of ratings."""

from refork_methods.theory.report.dial import DialCurve, dial_curve, dial_picture
from refork_methods.theory.report.draw import draw_pictures
from refork_methods.theory.report.leaderboard import leaderboard_picture
from refork_methods.theory.report.utility import UtilityCurve, utility_curve, utility_picture

__all__ = [
    "DialCurve",
    "UtilityCurve",
    "dial_curve",
    "dial_picture",
    "draw_pictures",
    "leaderboard_picture",
    "utility_curve",
    "utility_picture",
]
