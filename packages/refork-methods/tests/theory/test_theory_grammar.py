"""The grammar: every form runs, on arrays and as text alike; named rules are forms of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from refork.errors import BadInput
from refork.sandbox import Sandbox
from refork_methods.theory.domains import DOMAINS, domain_named
from refork_methods.theory.open import open_theory, rule_named
from refork_methods.theory.sandboxed import LIMITS, SandboxedTheory
from refork_methods.theory.simulate import simulate
from refork_methods.theory.theory_file import Theory


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as one:
        yield one


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_a_form_s_text_chooses_as_its_arrays_do(name, sandbox):
    """Every option of the theory's axes at least once; the same noise gives the same choices."""
    domain = domain_named(name)
    grammar, rng = domain.grammar, np.random.default_rng(4)
    cores = {grammar.core(form): form for form in grammar.forms()}
    kept: list[tuple[str, ...]] = []
    missing = {(axis, option) for axis, one in enumerate(grammar.own) for option in one.options}
    for core, form in sorted(cores.items()):
        if missing & set(enumerate(core)):
            kept.append(form)
            missing -= set(enumerate(core))
    kept += [next(form for form in cores.values() if history in form) for history in ("repeat", "alternate")]
    assert not missing
    for form in kept:
        design = domain.design(rng)
        theory = Theory.from_yaml(grammar.theory(form).to_yaml())
        runs = [simulate(one, design, 4, 3) for one in (grammar.rule(form), SandboxedTheory(theory, sandbox))]
        np.testing.assert_array_equal(runs[0].response, runs[1].response)


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_named_rules_are_forms(name):
    domain = domain_named(name)
    grammar, rng = domain.grammar, np.random.default_rng(0)
    for known, form in grammar.known.items():
        design = domain.design(rng)
        one, other = (simulate(rule, design, 5, 1) for rule in (rule_named(known, name), grammar.rule(form)))
        np.testing.assert_array_equal(one.response, other.response)


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_neighbours_differ_in_one_axis_and_are_mutual(name):
    grammar = domain_named(name).grammar
    for form in itertools.islice(grammar.forms(), 0, None, 37):
        near = grammar.neighbours(form)
        assert form not in near
        assert all(sum(a != b for a, b in zip(form, one, strict=True)) == 1 for one in near)
        assert all(form in grammar.neighbours(one) for one in near)
        model = grammar.neighbours(form, model=True)
        assert model == [one for one in near if grammar.core(one) == grammar.core(form)]


def test_refused_forms():
    grammar = domain_named("cues").grammar
    good = grammar.known["dial"]
    for bad in (good[:-1], ("odd", *good[1:]), ("none", "power", *good[2:])):
        with pytest.raises(BadInput):
            grammar.rule(bad)


def test_sizes():
    assert len(list(domain_named("cues").grammar.forms())) == (6 * 3 + 1) * 3 * 9
    assert len(list(domain_named("gambles").grammar.forms())) == (4 * 2 + 3) * 3 * 9


def test_theories_by_their_names(tmp_path, sandbox):
    (tmp_path / "mine.yaml").write_text(
        domain_named("cues").grammar.theory(("equal", "identity", "none", "any", "some")).to_yaml()
    )
    assert open_theory(str(tmp_path / "mine.yaml"), sandbox).reads_history is False
    assert open_theory("seed:dial", sandbox, "cues").name == "dial"
    assert open_theory("maximin", sandbox).domain == "gambles"
    for bad, domain in (("nothing", None), ("seed:dial", "gambles"), ("maximin", "cues")):
        with pytest.raises(BadInput):
            open_theory(bad, sandbox, domain)
