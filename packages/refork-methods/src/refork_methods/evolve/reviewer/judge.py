"""Reviewers: a scikit-learn pipeline trained on labelled reports, kept as the weights it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import content_hash, to_json
from refork.stats.results import Array
from refork_methods.evolve.reviewer.features import FEATURES

STYLE: Final = ("length", "markers", "layout")
_ITERATIONS: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class ReviewerSettings:
    """What can be edited of a reviewer: what it looks at, how it is trained, when it accepts.

    ``threshold``: it accepts where the chance that a report is good is above this. ``good_weight``: what a
    good report weighs in training, against 1. ``trap_weight``: what traps and controls weigh together,
    against 1 for all human reports. ``c``: inverse of the penalty on weights.

    Raises: BadInput for no feature, an unknown or doubled one, or a number out of its range.
    """

    features: tuple[str, ...]
    threshold: float = 0.5
    good_weight: float = 1.0
    trap_weight: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        strange = sorted(set(self.features) - set(FEATURES))
        if strange or not self.features or len(set(self.features)) != len(self.features):
            raise BadInput(
                f"a reviewer cannot look at {strange or list(self.features)}",
                hint=f"each at most once, one at least: {', '.join(FEATURES)}",
            )
        if not 0 < self.threshold < 1 or min(self.good_weight, self.c) <= 0 or self.trap_weight < 0:
            raise BadInput(
                f"threshold {self.threshold!r}, good_weight {self.good_weight!r}, trap_weight "
                f"{self.trap_weight!r}, c {self.c!r}",
                hint="a threshold in (0, 1), a trap weight of 0 or more, the others above 0",
            )


@final
@dataclass(frozen=True, slots=True)
class TextReviewer:
    """A trained reviewer: it accepts where ``weights . features + bias`` lies above the log-odds ``cut``."""

    settings: ReviewerSettings
    weights: tuple[float, ...]
    bias: float

    @property
    def id(self) -> str:
        """Digest of all that a verdict depends on."""
        return content_hash(to_json(self))

    def scores(self, table: Float[Array, "reports features"]) -> Float[Array, "reports"]:
        """Log-odds that each report is good, as the reviewer sees it."""
        # Summed feature by feature: a matrix product may round one report otherwise in a larger table.
        found = np.full(len(table), self.bias)
        for column, weight in enumerate(self.weights):
            found = found + weight * table[:, column]
        return found

    @property
    def cut(self) -> float:
        """The log-odds above which it accepts."""
        return float(np.log(self.settings.threshold / (1 - self.settings.threshold)))

    def accepts(self, table: Float[Array, "reports features"]) -> Bool[Array, "reports"]:
        """Which reports it accepts; the same ones every time."""
        found: NDArray[np.bool_] = self.scores(table) > self.cut
        return found


def train(
    settings: ReviewerSettings,
    table: Float[Array, "reports features"],
    labels: Int[Array, "reports"],
    weigh: Float[Array, "reports"] | None = None,
) -> TextReviewer:
    """Logistic regression on standardised features; the pipeline is folded into one weight per feature.

    ``labels``: 1 good, 0 not; ``weigh``: what each report weighs (None: all alike). Features that the
    settings leave out get weight 0.

    Raises: BadInput for labels of one class.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(labels)) != 2:
        raise BadInput("a reviewer is trained on good and bad reports", hint="add reports of the other class")
    columns = [FEATURES.index(name) for name in settings.features]
    share = np.ones(len(labels)) if weigh is None else np.asarray(weigh, dtype=np.float64)
    model = make_pipeline(
        StandardScaler(),
        LogisticRegression(
            C=settings.c, class_weight={0: 1.0, 1: settings.good_weight}, max_iter=_ITERATIONS
        ),
    )
    model.fit(
        table[:, columns],
        labels,
        standardscaler__sample_weight=share,
        logisticregression__sample_weight=share,
    )
    scaler, logistic = model[0], model[1]
    # A workspace is JSON: the scaler goes into the weights, so that no fitted object has to be kept.
    inner = logistic.coef_[0] / scaler.scale_
    weights = np.zeros(len(FEATURES))
    weights[columns] = inner
    bias = float(logistic.intercept_[0] - scaler.mean_ @ inner)
    return TextReviewer(settings, tuple(float(one) for one in weights), bias)
