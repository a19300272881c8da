from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.probe import FirstTokenProbe
from refork_methods.probe.scores import balanced_accuracy, youden
from support.planted_probe import planted


@pytest.fixture(scope="module")
def probe():
    _, y, x = planted(prompts=240, rollouts=6)
    owners = np.repeat(np.arange(240), 6)
    return FirstTokenProbe().fit(x[owners], y.ravel(), prompts=owners.tolist()), owners, y


def names(owners):
    return np.where(owners % 2, "harmful", "benign").tolist(), [f"set{i % 4 // 2}" for i in owners]


def test_pooled_and_within_groups_with_a_macro_mean_of_sources(probe):
    fitted, owners, _ = probe
    groups, sources = names(owners)
    found = fitted.evaluate(groups, sources, shuffles=39, resamples=50)
    assert set(found.within) == {"benign", "harmful"}
    assert found.within["benign"].sources == ("set0", "set1")
    assert found.within["harmful"].sources is None
    parts = [
        fitted.evaluate(
            [s if g == "benign" else "x" for g, s in zip(groups, sources, strict=True)],
            shuffles=39,
            resamples=50,
        )
    ]
    wanted = np.mean([parts[0].within[f"set{i}"].area.auroc.estimate for i in (0, 1)])
    assert found.within["benign"].area.auroc.estimate == pytest.approx(wanted)
    assert all(area.ceiling is not None for area in found.areas().values())
    assert found.to_json()["pooled"]["ceiling"]["estimate"] == found.pooled.area.ceiling.estimate
    assert "balanced accuracy" in str(found.pooled)


def test_a_source_with_few_refusals_is_left_out_and_named(probe):
    fitted, owners, y = probe
    groups = ["benign"] * len(owners)
    labels = y.ravel()
    few = set(np.flatnonzero(labels == 1)[:19].tolist())
    sources = [
        "small" if i in few or (i % 3 == 0 and labels[i] == 0) else "large" for i in range(len(owners))
    ]
    found = fitted.evaluate(groups, sources, shuffles=39, resamples=20)
    assert found.left_out == {"benign/small": "19 refusals, 20 are needed"}
    assert found.within["benign"].sources == ("large",)
    with pytest.raises(BadInput, match="no source"):
        fitted.evaluate(groups, [str(i) for i in range(len(owners))], shuffles=39, resamples=20)


def test_a_group_with_one_label_is_refused(probe):
    fitted, _, y = probe
    groups = np.where(y.ravel() == 1, "harmful", "benign").tolist()
    with pytest.raises(BadInput, match=r"are refusals|are compliances"):
        fitted.evaluate(groups)


def test_names_must_be_one_a_row(probe):
    with pytest.raises(BadInput, match="groups"):
        probe[0].evaluate(["harmful"])
    with pytest.raises(BadInput, match="sources"):
        probe[0].evaluate(None, ["set"])


def test_youden_takes_the_best_threshold_by_hand():
    scores, labels = np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])
    assert youden(scores, labels) in (0.8, 0.35)
    assert youden(scores, np.ones(4, dtype=int)) == 0.0


def test_the_threshold_of_a_fold_comes_from_the_others():
    """Fold 1 is shifted by 10: with its own threshold it would be perfect, with fold 0's all are refusals."""
    scores = np.array([0.0, 1.0, 0.0, 1.0, 10.0, 11.0, 10.0, 11.0])
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    folds = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    assert balanced_accuracy(scores, labels, folds) == 0.5
    assert balanced_accuracy(scores[:4], labels[:4], np.array([0, 0, 1, 1])) == 1.0
    with pytest.raises(BadInput):
        balanced_accuracy(scores, np.ones(8, dtype=int), folds)
