"""Curves of values along a trace, from lists."""

import numpy as np

from refork_methods.cliff.curve import Curve


def curve(wins, draws, chance, outcome=0.0, pairs=None):
    wins, draws = np.array(wins, dtype=float), np.array(draws)
    size = len(wins)
    n = np.full(size, 64) if pairs is None else np.array(pairs[0])
    total = np.zeros(size) if pairs is None else np.array(pairs[1], dtype=float)
    square = np.zeros(size) if pairs is None else np.array(pairs[2], dtype=float)
    return Curve(wins, draws, outcome, np.array(chance, dtype=float), n, total, square, 64, 64 * size, 100)
