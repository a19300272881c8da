import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork_methods.evolve.reviewer.features import FEATURES
from refork_methods.evolve.reviewer.judge import STYLE, ReviewerSettings, TextReviewer, train
from refork_methods.evolve.reviewer.shop import Material


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(200, len(FEATURES)))
    return table, (table @ np.arange(5) + rng.normal(size=200) > 0).astype(np.int64), rng.random(200)


def test_the_folded_weights_are_the_pipeline(data):
    table, labels, weigh = data
    settings = ReviewerSettings(("length", "spots"), 0.3, good_weight=2.0, c=0.5)
    columns = [FEATURES.index(name) for name in settings.features]
    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.5, class_weight={0: 1.0, 1: 2.0}, max_iter=1000)
    )
    model.fit(table[:, columns], labels, standardscaler__sample_weight=weigh,
              logisticregression__sample_weight=weigh)  # fmt: skip
    found = train(settings, table, labels, weigh)
    assert np.allclose(found.scores(table), model.decision_function(table[:, columns]), atol=1e-9)
    chances = model.predict_proba(table[:, columns])[:, 1]
    assert (found.accepts(table) == (chances > 0.3)).all()
    assert [weight for weight, name in zip(found.weights, FEATURES, strict=True)
            if name not in settings.features] == [0.0] * 3  # fmt: skip


def test_a_verdict_does_not_depend_on_the_reports_beside_it(data):
    found = train(ReviewerSettings(FEATURES), data[0], data[1])
    alone = np.concatenate([found.scores(data[0][i : i + 1]) for i in range(200)])
    assert (alone == found.scores(data[0])).all()


def test_a_reviewer_survives_the_archive_and_its_id_is_its_verdicts(data):
    found = train(ReviewerSettings(STYLE), data[0], data[1])
    assert from_json(TextReviewer, to_json(found)) == found
    other = train(ReviewerSettings(STYLE, threshold=0.6), data[0], data[1])
    assert found.weights == other.weights
    assert found.id != other.id


def test_settings_that_cannot_be_are_refused(data):
    for fields in ({"features": ()}, {"features": ("luck",)}, {"features": ("spots", "spots")},
                   {"threshold": 1.0}, {"c": 0.0}, {"good_weight": 0.0}, {"trap_weight": -1.0}):  # fmt: skip
        with pytest.raises(BadInput):
            ReviewerSettings(**({"features": STYLE} | fields))
    with pytest.raises(BadInput, match="good and bad"):
        train(ReviewerSettings(STYLE), data[0], np.ones(200, np.int64))


def test_traps_weigh_as_asked_once_there_are_enough():
    many = Material(np.zeros((80, 5)), np.zeros(80, np.int64), 40)
    assert many.weights(2.0)[40:].sum() == pytest.approx(80)
    few = Material(np.zeros((45, 5)), np.zeros(45, np.int64), 40)
    assert few.weights(1.0)[40:].sum() == pytest.approx(10)
