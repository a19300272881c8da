"""Folds that keep a prompt on one side, and the two ways to fit inside them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array

Recipe = Literal["pca", "raw"]
FOLDS: Final = 5
SEED: Final = 42
COMPONENTS: Final = 100


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A probe as one linear map of raw states: ``logit = states @ weight + bias``."""

    weight: NDArray[np.float64]
    bias: float
    converged: bool

    def scores(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Logits of refusal, [rows]."""
        return np.asarray(states, dtype=np.float64) @ self.weight + self.bias


def fold_of(
    labels: Int[Array, "rows"], prompts: Int[Array, "rows"], folds: int = FOLDS, seed: int = SEED
) -> Int[Array, "rows"]:
    """The fold that each row is tested in: stratified by label, all rows of one prompt in one fold.

    Rollouts of one prompt share their state: with some of them in training, a probe is asked about prompts it
    knows the answers of, and its AUROC says nothing of new ones. With one row per prompt this is plain
    stratified cross-validation.

    Raises: BadInput for a training side without both classes, or more folds than rows of either class.
    Source: arXiv:2606.25013 (stratified 5-fold, seed 42, one rollout per prompt); grouping is ours.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    largest = int(np.unique(labels, return_counts=True)[1].max(initial=0))
    if folds > largest:
        raise BadInput(
            f"{folds} folds need as many rows of one outcome, and there are at most {largest}",
            where="probe",
            hint="add prompts, or use fewer folds",
        )
    alone = len(np.unique(prompts)) == len(prompts)
    kind = StratifiedKFold if alone else StratifiedGroupKFold
    splitter = kind(n_splits=folds, shuffle=True, random_state=seed)
    found = np.full(len(labels), -1, dtype=np.int64)
    with warnings.catch_warnings():
        # A class smaller than the folds is refused below in our own words.
        warnings.simplefilter("ignore", UserWarning)
        for number, (train, test) in enumerate(splitter.split(np.zeros(len(labels)), labels, prompts)):
            if len(np.unique(labels[train])) < 2:
                raise BadInput(
                    f"fold {number} leaves one class to train on",
                    where="probe",
                    hint="add prompts with the rarer outcome, or use fewer folds",
                )
            found[test] = number
    return found


def fit_linear(
    states: Float[Array, "rows width"], labels: Int[Array, "rows"], recipe: Recipe = "pca", seed: int = SEED
) -> Fitted:
    """A logistic probe of standardised states; constant states give the constant 0.

    ``pca``: PCA to 100 components (fewer where rows or width allow fewer), C 0.03, balanced classes, 3,000
    iterations. ``raw``: no PCA, C 1, 200 iterations. The pipeline is folded into one weight vector.

    Raises: BadInput for an unknown recipe.
    Source: arXiv:2606.25013, main table and its alternative.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    part = scaled(states, recipe, seed)
    # An intercept would differ from fold to fold with the mix of labels, and pull the AUROC off one half.
    if part.train.shape[1] == 0:
        return Fitted(np.zeros(len(part.centre)), 0.0, True)
    model = (
        LogisticRegression(C=0.03, class_weight="balanced", max_iter=3000, random_state=seed)
        if recipe == "pca"
        else LogisticRegression(C=1.0, max_iter=200, random_state=seed)
    )
    with warnings.catch_warnings():
        # The source stops at these iterations too; what did not converge is told, not hidden.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(part.train, labels)
    weight, bias = model.coef_[0], float(model.intercept_[0])
    # The pipeline is undone from its end: first the projection and its centre, then the scaler.
    if part.pca is not None:
        bias -= float(part.pca.mean_ @ (part.pca.components_.T @ weight))
        weight = part.pca.components_.T @ weight
    weight = weight / part.scale
    return Fitted(weight, bias - float(part.centre @ weight), bool(model.n_iter_[0] < model.max_iter))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """States as a recipe's logistic regression gets them, and how others are brought there."""

    train: NDArray[np.float64]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    pca: Any

    def of(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Other states, on the same axes."""
        if self.train.shape[1] == 0:
            return np.zeros((len(states), 0))
        z = (np.asarray(states, dtype=np.float64) - self.centre) / self.scale
        return z if self.pca is None else np.asarray(self.pca.transform(z))


def scaled(states: Float[Array, "rows width"], recipe: Recipe, seed: int = SEED) -> Scaled:
    """Standardised states, projected where the recipe says so; constant states have no axis left.

    Raises: BadInput for an unknown recipe.
    """
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    if recipe not in ("pca", "raw"):
        raise BadInput(f"unknown probe recipe {recipe!r}", hint="'pca' or 'raw'")
    x = np.asarray(states, dtype=np.float64)
    if np.ptp(x, axis=0).max(initial=0.0) == 0.0:
        return Scaled(np.zeros((len(x), 0)), x[0], np.ones(x.shape[1]), None)
    scaler = StandardScaler().fit(x)
    z = scaler.transform(x)
    pca = PCA(min(COMPONENTS, *z.shape), random_state=seed).fit(z) if recipe == "pca" else None
    return Scaled(z if pca is None else pca.transform(z), scaler.mean_, scaler.scale_, pca)


def out_of_fold(
    states: Float[Array, "rows width"],
    labels: Int[Array, "rows"],
    folds: Int[Array, "rows"],
    recipe: Recipe = "pca",
    seed: int = SEED,
) -> Float[Array, "rows"]:
    """Logit of refusal of each row by the probe that was fitted on all other folds."""
    found = np.zeros(len(labels))
    for fold in np.unique(folds):
        test = folds == fold
        found[test] = fit_linear(states[~test], labels[~test], recipe, seed).scores(states[test])
    return found
