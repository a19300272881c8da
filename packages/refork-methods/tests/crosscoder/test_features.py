"""Classes, latent scaling, ranking and audit against closed forms and references."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from refork.errors import BadInput, CannotDo
from refork_methods.crosscoder.audit import Audit, claim, exclusivity
from refork_methods.crosscoder.classes import (
    encoded_chunks,
    fraction_of_variance,
    latent_scaling,
    norm_classes,
    relative_norm,
)
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import Normalizer
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.rank import (
    Example,
    cohens_d,
    counts,
    rank_features,
    with_examples,
)
from refork_methods.crosscoder.sources import ArrayPairs


def made(widths=(6, 6), size=20, partition=None):
    model = CrossCoder(widths, size, 4, "topk", partition or Partition(a=0.2, b=0.2), seed=3)
    model.set_normalizer(Normalizer.identity(sum(widths)))
    with torch.no_grad():
        model.b_dec.normal_(generator=torch.Generator().manual_seed(1))
    return model


def pairs(count=300, widths=(6, 6), seed=0):
    rng = np.random.default_rng(seed)
    return ArrayPairs(*(rng.normal(size=(count, d)) for d in widths))


def test_relative_norm_puts_the_partition_at_its_ends():
    model = made()
    share = relative_norm(model)
    assert (share[:4] == 1).all()
    assert (share[4:8] == 0).all()
    assert ((share[8:] > 0.1) & (share[8:] < 0.9)).all()
    assert norm_classes(share) == ["A only"] * 4 + ["B only"] * 4 + ["shared"] * 12
    with torch.no_grad():
        model.W_dec[9] = 0.0
    assert math.isnan(relative_norm(model)[9])
    with pytest.raises(BadInput):
        norm_classes(share, 0.1, 0.9)


def factors(values, directions, target):
    """Least-squares b of ``b * f_i d_i^T`` against one target, for each feature by itself."""
    found = []
    for i, direction in enumerate(directions):
        design = np.outer(values[:, i], direction).reshape(-1, 1)
        known = np.linalg.lstsq(design, target.reshape(-1), rcond=None)[0][0]
        found.append(known if design.any() else np.nan)
    return np.array(found)


@pytest.mark.parametrize("which", ["A", "B"])
def test_latent_scaling_over_chunks_is_the_closed_form_on_everything(which):
    model, source = made(), pairs()
    found = latent_scaling(model, source, which)
    chunks = list(encoded_chunks(model, source, rows=70))
    z, f = (torch.cat(part).double().detach().numpy() for part in zip(*chunks, strict=True))
    weights, base = model.W_dec.detach().double().numpy(), model.b_dec.detach().double().numpy()
    at = model.side(which)
    for side in ("A", "B"):
        to = model.side(side)
        written = f @ weights[:, to]
        assert np.allclose(
            getattr(found, f"rebuilt_{side.lower()}"),
            factors(f, weights[:, at], written),
            equal_nan=True,
        )
        for i in (0, 5, 9, 13):
            error = z[:, to] - base[to] - written + np.outer(f[:, i], weights[i, to])
            wanted = factors(f[:, [i]], weights[[i], at], error)[0]
            assert getattr(found, f"error_{side.lower()}")[i] == pytest.approx(wanted, nan_ok=True)


def test_a_feature_that_alone_is_what_a_model_says_has_a_factor_of_one():
    model = made()
    with torch.no_grad():
        model.W_dec[torch.arange(20) != 9] = 0.0
    found = latent_scaling(model, pairs())
    assert found.rebuilt_a[9] == pytest.approx(1.0, abs=1e-6)


def test_latent_scaling_needs_one_width():
    with pytest.raises(BadInput, match="their widths are"):
        latent_scaling(made((6, 7)), pairs(widths=(6, 7)))


def test_what_both_models_carry_has_a_ratio_of_one():
    """The same activations in both: every A direction is as much in B, whatever block a feature lies in."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 6))
    model = made(partition=Partition(a=0.5, b=0.0))
    source = ArrayPairs(x, x)
    model.fit(source, _short())
    audit = exclusivity(model, source)
    ratios = [row.ratio_error for row in audit.rows if row.in_block]
    assert audit.capture is not None
    assert audit.carried is not None
    assert np.median(ratios) > 0.5
    assert claim(audit).verdict == "not supported"
    assert "carried by both" in str(claim(audit))


def test_what_one_model_lacks_has_a_ratio_near_zero():
    rng = np.random.default_rng(1)
    shared = np.maximum(rng.normal(size=(4_000, 3)) - 0.5, 0) @ rng.normal(size=(3, 6))
    own = (rng.random((4_000, 1)) < 0.2) * rng.uniform(1, 2, (4_000, 1)) @ rng.normal(size=(1, 6)) * 3
    model = made(partition=Partition(a=0.2, b=0.0))
    source = ArrayPairs(shared + own, shared)
    model.fit(source, _short())
    audit = exclusivity(model, source)
    dense = [row for row in audit.rows if row.fires > 0.05]
    assert dense
    assert min(abs(row.ratio_error) for row in dense) < 0.1


def _short():
    from refork_methods.crosscoder.train import TrainSettings

    return TrainSettings(steps=400, batch=100, rate=0.01)


def test_a_claim_carries_capture_and_latent_scaling():
    whole = {"side": "A", "live": 9, "block_size": 4, "block_live": 3, "rows": ()}
    shares = {"capture": 0.75, "exclusive": 1.0, "carried": 0.0}
    told = claim(Audit(**whole, **shares))
    assert told.verdict == "supported"
    assert "capture 75%" in str(told)
    assert "latent scaling: 100%" in str(told)
    assert claim(Audit(**whole, **(shares | {"exclusive": 0.6, "carried": 0.2}))).verdict == "mixed"
    for missing in shares:
        with pytest.raises(CannotDo, match="nothing can be said"):
            claim(Audit(**whole, **(shares | {missing: None})))


def test_an_audit_of_other_widths_has_no_latent_scaling_and_no_claim():
    audit = exclusivity(made((6, 7)), pairs(widths=(6, 7)))
    assert audit.capture == 1.0
    assert audit.exclusive is None
    assert audit.rows[0].ratio_error is None
    with pytest.raises(CannotDo, match="latent scaling"):
        claim(audit)


def test_variance_explained_counts_every_channel_alike():
    model, source = made(), pairs()
    z, f = (torch.cat(p) for p in zip(*encoded_chunks(model, source, rows=64), strict=True))
    error = (z - f @ model.W_dec - model.b_dec).square().sum()
    wanted = 1 - error / (z - z.mean(dim=0)).square().sum()
    assert fraction_of_variance(model, source) == pytest.approx(float(wanted.detach()), rel=1e-5)


def sparse(count, rate, size=20, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((count, size)) < rate) * rng.integers(1, 4, (count, size)).astype(float)


def test_auroc_counts_ties_half_as_scikit_learn_does():
    x, y = sparse(80, np.linspace(0, 0.9, 20)), sparse(120, np.linspace(0, 0.5, 20), seed=1)
    labels = np.repeat([1, 0], [80, 120])
    for row in rank_features(made(), x, y):
        both = np.concatenate([x[:, row.feature], y[:, row.feature]])
        assert row.auroc == pytest.approx(roc_auc_score(labels, both), abs=1e-12)
        assert row.fires_positive == (x[:, row.feature] > 0).mean()
        if row.auroc_low is not None:
            assert row.auroc_low <= row.auroc <= row.auroc_high


def test_cohens_d_pools_by_the_mean_of_variances():
    x, y = sparse(40, 0.5), sparse(60, 0.3, seed=2)
    found = cohens_d(x, y)
    for i in range(20):
        pooled = math.sqrt((x[:, i].var(ddof=1) + y[:, i].var(ddof=1)) / 2)
        assert found[i] == pytest.approx((x[:, i].mean() - y[:, i].mean()) / pooled)
    constant = cohens_d(np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert constant[0] == 0.0
    assert constant[1] == math.inf


def test_the_table_is_sorted_and_names_blocks_and_candidates():
    x, y = sparse(100, 0.35), sparse(100, 0.05, seed=3)
    rows = rank_features(made(), x, y)
    assert [row.d for row in rows] == sorted((row.d for row in rows), reverse=True)
    by_feature = {row.feature: row for row in rows}
    assert [by_feature[i].block for i in (0, 3, 4, 7, 8)] == ["A", "A", "B", "B", "shared"]
    for row in rows:
        assert row.candidate == (row.fires_positive >= 0.3 and row.fires_negative <= 0.1)
    told = counts(rows)
    assert sum(part["features"] for part in told.values()) == 20
    assert told["A"]["candidates"] == sum(by_feature[i].candidate for i in range(4))
    shown = with_examples(rows[:2], x, lambda row, value: Example(value, str(row), "", ""), 3)
    best = shown[0].examples
    assert len(best) == 3
    assert best[0].value == x[:, rows[0].feature].max()
    assert shown[0].to_json()["examples"][0]["token"] == best[0].token


def test_values_of_another_dictionary_are_refused():
    with pytest.raises(BadInput, match="not of 20 features"):
        rank_features(made(), np.zeros((5, 20)), np.zeros((5, 21)))
    with pytest.raises(BadInput, match="two of each"):
        rank_features(made(), np.zeros((5, 20)), np.zeros((1, 20)))
