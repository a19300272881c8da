from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from refork.errors import BadInput
from refork_methods.probe import FirstTokenProbe, load_probe, text_control
from refork_methods.probe.folds import fit_linear, fold_of
from refork_testbed.worlds.refusal.world import refusal_world
from support.planted_probe import planted


def reference(recipe, width):
    if recipe == "pca":
        last = LogisticRegression(C=0.03, class_weight="balanced", max_iter=3000)
        return make_pipeline(StandardScaler(), PCA(min(100, width), random_state=42), last)
    return make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=200))


@pytest.mark.parametrize("recipe", ["pca", "raw"])
def test_out_of_fold_scores_are_scikit_learns(recipe):
    _, y, x = planted(rollouts=1)
    fitted = FirstTokenProbe(recipe=recipe).fit(x, y[:, 0])
    split = StratifiedKFold(5, shuffle=True, random_state=42)
    wanted = cross_val_predict(reference(recipe, 24), x, y[:, 0], cv=split, method="decision_function")
    np.testing.assert_allclose(fitted.scores, wanted, atol=1e-6)
    found = fitted.evaluate(shuffles=39).pooled.area.auroc.estimate
    assert found == pytest.approx(roc_auc_score(y[:, 0], wanted), abs=1e-9)
    whole = reference(recipe, 24).fit(x, y[:, 0])
    np.testing.assert_allclose(fitted.linear.scores(x), whole.decision_function(x), atol=1e-6)


def test_components_are_capped_by_the_data():
    _, y, x = planted(prompts=40, rollouts=1, width=300)
    assert FirstTokenProbe().fit(x, y[:, 0]).linear.weight.shape == (300,)


def test_rollouts_of_a_prompt_are_never_on_both_sides():
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(60), rng.integers(1, 9, 60))
    folds = fold_of(rng.integers(0, 2, len(owners)), owners)
    assert set(folds.tolist()) == set(range(5))
    for owner in range(60):
        assert len(set(folds[owners == owner].tolist())) == 1


def test_more_folds_than_rows_of_an_outcome_are_refused():
    for owners in (np.arange(10), np.repeat(np.arange(5), 2)):
        with pytest.raises(BadInput, match="10 folds"):
            fold_of(np.array([0, 1] * 5), owners, folds=10)


def test_without_groups_in_folds_noise_would_look_like_knowledge():
    """States that say only which prompt it is: grouped folds read a coin, rows taken alone read far more."""
    rng = np.random.default_rng(1)
    q = rng.beta(0.3, 0.3, 60)
    y = (rng.random((60, 12)) < q[:, None]).astype(np.int64).ravel()
    x = np.repeat(rng.normal(size=(60, 60)), 12, axis=0)
    owners = np.repeat(np.arange(60), 12).tolist()
    grouped = FirstTokenProbe().fit(x, y, prompts=owners).evaluate(shuffles=39).pooled.area.auroc.estimate
    alone = FirstTokenProbe().fit(x, y).evaluate(shuffles=39).pooled.area.auroc.estimate
    assert abs(grouped - 0.5) < 0.15
    assert alone > 0.85


def test_the_planted_commitment_is_read_and_its_words_are_not():
    """World P, q ~ Beta(.2, .2) in 64 steps: AUROC within .03 of .968; words alone .50 +- .03."""
    world = refusal_world("P")
    tasks = world.tasks("held-out", 400)
    rng = np.random.default_rng(0)
    q = np.array([world.chance(task) for task in tasks])
    y = (rng.random((400, 32)) < q[:, None]).astype(np.int64)
    marks = np.stack([np.log(q / (1 - q)), *rng.normal(size=(15, 400))], axis=1)
    x = marks @ rng.normal(size=(16, 16))
    owners = np.repeat(np.arange(400), 32)
    found = (
        FirstTokenProbe().fit(x[owners], y.ravel(), prompts=owners.tolist()).evaluate(shuffles=39).pooled.area
    )
    assert abs(found.auroc.estimate - 0.968) < 0.03
    assert abs(found.ceiling.estimate - 0.968) < 0.02
    assert not found.leak
    words = rng.choice(["for", "against", "unsure"], size=owners.size, p=[0.4, 0.4, 0.2])
    text = text_control(words.tolist(), y.ravel(), prompts=owners.tolist()).evaluate(shuffles=39).pooled.area
    assert abs(text.auroc.estimate - 0.5) < 0.03
    assert text.ceiling is not None


def test_a_deliberating_world_has_nothing_to_read_before_it_thinks():
    rng = np.random.default_rng(4)
    y, x = rng.integers(0, 2, (400, 4)), rng.normal(size=(400, 16))
    owners = np.repeat(np.arange(400), 4)
    found = (
        FirstTokenProbe().fit(x[owners], y.ravel(), prompts=owners.tolist()).evaluate(shuffles=39).pooled.area
    )
    assert found.auroc.estimate <= 0.55


def test_one_label_a_prompt_may_take_its_ceiling_from_all_rollouts():
    _, y, x = planted(rollouts=16)
    one = FirstTokenProbe().fit(x, y[:, 0], counts=(y.sum(axis=1), np.full(200, 16)))
    assert one.evaluate(shuffles=39).pooled.area.ceiling.rollouts == (16, 16)
    assert FirstTokenProbe().fit(x, y[:, 0]).evaluate(shuffles=39).pooled.area.ceiling is None


def test_a_constant_first_token_tells_exactly_nothing():
    _, y, _ = planted(rollouts=4)
    found = text_control(["<think>"] * y.size, y.ravel(), prompts=np.repeat(np.arange(200), 4).tolist())
    assert found.evaluate(shuffles=39).pooled.area.auroc.estimate == 0.5


def test_a_telling_first_token_is_found_by_the_text_control():
    _, y, _ = planted(rollouts=4)
    words = np.where(y.ravel() == 1, "I", "Sure").tolist()
    found = text_control(words, y.ravel(), prompts=np.repeat(np.arange(200), 4).tolist())
    assert found.evaluate(shuffles=39).pooled.area.auroc.estimate > 0.99


def test_constant_states_give_a_coin():
    _, y, _ = planted(rollouts=1)
    fitted = FirstTokenProbe().fit(np.ones((200, 3)), y[:, 0])
    assert fitted.evaluate(shuffles=39).pooled.area.auroc.estimate == 0.5
    assert not fitted.linear.weight.any()


def test_a_probe_is_saved_and_loaded_without_pickle(tmp_path):
    _, y, x = planted(rollouts=1)
    fitted = FirstTokenProbe("first_thinking", layer=3).fit(x, y[:, 0])
    fitted.save(tmp_path / "probe.safetensors", {"policy": "tiny"})
    probe, linear, about = load_probe(tmp_path / "probe.safetensors")
    assert probe == fitted.probe
    assert about == {"policy": "tiny"}
    assert linear.converged == fitted.linear.converged
    np.testing.assert_array_equal(linear.scores(x), fitted.linear.scores(x))
    (tmp_path / "text.safetensors").write_text("no probe")
    for name in ("missing.safetensors", "text.safetensors"):
        with pytest.raises(BadInput, match="cannot be read"):
            load_probe(tmp_path / name)
    from safetensors.numpy import save_file

    save_file({"weight": np.ones(2)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(BadInput, match="holds no probe"):
        load_probe(tmp_path / "other.safetensors")


def test_same_states_same_probe():
    _, y, x = planted(rollouts=1)
    one, two = (FirstTokenProbe().fit(x, y[:, 0]) for _ in range(2))
    np.testing.assert_array_equal(one.scores, two.scores)


def test_fewer_than_five_of_a_class_are_refused():
    x = np.random.default_rng(0).normal(size=(50, 4))
    for refused in (0, 4, 46, 50):
        with pytest.raises(BadInput, match="examples of"):
            FirstTokenProbe().fit(x, [1] * refused + [0] * (50 - refused))
    # Many rollouts of few prompts are no more examples.
    with pytest.raises(BadInput, match="from 2 prompts"):
        FirstTokenProbe().fit(x, [1] * 20 + [0] * 30, prompts=[0] * 10 + [1] * 10 + list(range(2, 32)))


@pytest.mark.parametrize(
    ("states", "labels", "told"),
    [
        (np.ones((20, 2, 2)), [0, 1] * 10, "shape"),
        (np.ones((19, 2)), [0, 1] * 10, "shape"),
        (np.full((20, 2), np.nan), [0, 1] * 10, "NaN"),
        (np.ones((20, 2)), [0, 2] * 10, "labels"),
    ],
)
def test_states_and_labels_that_do_not_fit(states, labels, told):
    with pytest.raises(BadInput, match=told):
        FirstTokenProbe().fit(states, labels)


def test_counts_that_contradict_the_rows():
    _, y, x = planted(prompts=40, rollouts=2)
    rows, owners = x.repeat(2, axis=0), np.repeat(np.arange(40), 2).tolist()
    fewer = (np.zeros(80, dtype=int), np.full(80, 2))
    with pytest.raises(BadInput, match="fewer outcomes"):
        FirstTokenProbe().fit(rows, y.ravel(), prompts=owners, counts=fewer)
    differ = (np.arange(80), np.full(80, 200))
    with pytest.raises(BadInput, match="different counts"):
        FirstTokenProbe().fit(rows, y.ravel(), prompts=owners, counts=differ)


@pytest.mark.parametrize("wrong", [{"position": "middle"}, {"recipe": "deep"}, {"folds": 1}])
def test_probes_that_are_none(wrong):
    with pytest.raises(BadInput):
        FirstTokenProbe(**wrong)


def test_an_unknown_recipe_is_refused():
    with pytest.raises(BadInput, match="recipe"):
        fit_linear(np.eye(3), np.array([0, 1, 0]), "deep")
