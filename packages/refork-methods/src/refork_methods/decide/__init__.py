"""Act when the expected gain beats the price: thresholds, calibrated chances, regret and frontiers.

One piece of code for every layer that decides around a frozen model: verify or ship, which worker, inject a
finding or not.
"""

from refork_methods.decide.calibrate import (
    Calibration,
    Reliability,
    brier,
    calibration_error,
    fit_calibration,
    reliability,
)
from refork_methods.decide.frontier import area_under_frontier, frontier
from refork_methods.decide.posterior import BetaRate
from refork_methods.decide.regret import BestRule, Regret, against_rules, regret
from refork_methods.decide.threshold import Advice, advise, break_even, crossing

__all__ = [
    "Advice",
    "BestRule",
    "BetaRate",
    "Calibration",
    "Regret",
    "Reliability",
    "advise",
    "against_rules",
    "area_under_frontier",
    "break_even",
    "brier",
    "calibration_error",
    "crossing",
    "fit_calibration",
    "frontier",
    "regret",
    "reliability",
]
