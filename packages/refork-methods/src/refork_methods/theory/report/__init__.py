"""Pictures of theories: the leaderboard over rounds, the dial, the utility of ratings."""

from refork.discover.theory.report.dial import DialCurve, dial_curve, dial_picture
from refork.discover.theory.report.draw import draw_pictures
from refork.discover.theory.report.leaderboard import leaderboard_picture
from refork.discover.theory.report.utility import UtilityCurve, utility_curve, utility_picture

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
