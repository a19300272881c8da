"""Prompts whose chance of refusal is known, with states that show it."""

from __future__ import annotations

import numpy as np


def planted(prompts=200, rollouts=16, a=0.2, noise=1.0, width=24, seed=0):
    """Chances [n], labels [n, k], states [n, width] that hold the logit of the chance and noise."""
    rng = np.random.default_rng(seed)
    q = rng.beta(a, a, prompts).clip(1e-6, 1 - 1e-6)
    y = (rng.random((prompts, rollouts)) < q[:, None]).astype(np.int64)
    x = np.outer(np.log(q / (1 - q)), rng.normal(size=width)) + noise * rng.normal(size=(prompts, width))
    return q, y, x
