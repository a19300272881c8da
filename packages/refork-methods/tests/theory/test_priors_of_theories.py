from __future__ import annotations

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.theory.priors import Fixed, Given, OneOf, Uniform, parse_prior, sample_priors

CONTEXT = {"n_features": 3, "validities": [0.9, 0.8, 0.7]}
finite = st.floats(-100, 100).map(lambda x: round(x, 3))


@pytest.mark.parametrize(
    ("spec", "prior"),
    [
        ("[0.1, 20]", Uniform(0.1, 20)),
        ([0.1, 20], Uniform(0.1, 20)),
        ("[-1, 1] * 4", Uniform(-1, 1, 4)),
        ("[(0, 1)] * n_features", Uniform(0, 1, "n_features")),
        ("{1, 2.5}", OneOf((1.0, 2.5))),
        ("{'up', 'down'}", OneOf(("up", "down"))),
        (yaml.safe_load("{1, 2.5}"), OneOf((1.0, 2.5))),
        ("validities", Given("validities")),
        ("0.5", Fixed(0.5)),
        (2, Fixed(2.0)),
        ("1234567", Fixed(1234567.0)),
        ("0.12345678", Fixed(0.12345678)),
        ("[0.12345678, 1234567]", Uniform(0.12345678, 1234567)),
        ("{1234567.5, 2}", OneOf((1234567.5, 2.0))),
    ],
)
def test_priors_are_read(spec, prior):
    assert parse_prior(spec) == prior
    assert parse_prior(prior.text()) == prior


@pytest.mark.parametrize(
    "spec",
    [
        "[1]", "[1, 2, 3]", "[2, 1]", "[0, 1e999]", "[a, 1]", "f(1)", "__import__('os')", "[0, 1] * 2.5",
        "[0, 1] * 0", "{}", {}, {"a": 1}, None, True, "", "a.b", "[0, 1] +", "[True, 1]", "'text'",
        "xxx[0]",
    ],
)  # fmt: skip
def test_refused_priors(spec):
    with pytest.raises(BadInput):
        parse_prior(spec, "theory.yaml")


@given(finite, finite, st.integers(0, 99))
def test_uniform_samples_stay_in_their_range(a, b, seed):
    low, high = min(a, b), max(a, b)
    drawn = Uniform(low, high, "n_features").sample(np.random.default_rng(seed), 50, CONTEXT)
    assert drawn.shape == (50, 3)
    assert ((drawn >= low) & (drawn <= high)).all()


def test_samples_have_a_row_for_each_person():
    priors = {
        "w": Uniform(0, 1, 2),
        "k": OneOf((1.0, 2.0)),
        "v": Given("validities"),
        "n": Given("n_features"),
    }
    drawn = sample_priors({**priors, "c": Fixed(3)}, np.random.default_rng(0), 400, CONTEXT)
    assert {name: values.shape for name, values in drawn.items()} == {
        "w": (400, 2), "k": (400,), "v": (400, 3), "n": (400,), "c": (400,),
    }  # fmt: skip
    assert set(drawn["k"]) == {1.0, 2.0}
    assert drawn["v"][7].tolist() == CONTEXT["validities"]
    assert set(drawn["c"]) == {3.0}


def test_a_name_that_the_experiment_has_not():
    for prior in (Given("ratings"), Uniform(0, 1, "cues"), Uniform(0, 1, "validities")):
        with pytest.raises(BadInput):
            prior.sample(np.random.default_rng(0), 2, CONTEXT)
