"""Posterior means, strata that are thin or missing, the refine kernel, leaving one instance out."""

from fractions import Fraction

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.gate.fit import (
    FEWEST,
    beliefs,
    count_steps,
    fit,
    fit_critics,
    leave_one_out,
    refuse_fitted,
)
from refork_methods.gate.model import Critic, CriticModel, Kernel, exact, read_policy, write_policy
from refork_methods.gate.planted import planted_records
from refork_methods.gate.policy import after, refined
from refork_methods.gate.records import Record

TRUE = CriticModel(0.6, (Critic("test", 0.9, 0.45, 2), Critic("review", 0.8, 0.35, 5)), Kernel(0.25, 0.1))
PRICES = {"test": 2, "review": 5}


def made(right, wrong, passed_right=None, passed_wrong=None, critic="test"):
    """``right`` and ``wrong`` candidates, of which so many pass the critic."""
    passing = [i < (right if passed_right is None else passed_right) for i in range(right)]
    failing = [i < (passed_wrong or 0) for i in range(wrong)]
    sides = [(True, p) for p in passing] + [(False, p) for p in failing]
    return [Record(f"i{n}", "0", y, {critic: p}) for n, (y, p) in enumerate(sides)]


def steps(pairs, artifacts=None):
    """One draw of two steps for every (before, after) pair."""
    found = []
    for n, (before, then) in enumerate(pairs):
        a, b = artifacts[n] if artifacts else (f"{n}a", f"{n}b")
        found += [Record(f"i{n}", "0", before, {}, step=0, artifact=a)]
        found += [Record(f"i{n}", "0", then, {}, step=1, artifact=b)]
    return found


class TestCritics:
    def test_rates_are_posterior_means_under_the_uniform_prior(self):
        model = fit_critics(made(40, 20, 36, 8), {"test": 2})
        assert exact(model.prior) == Fraction(41, 62)
        critic = model.critic("test")
        assert exact(critic.alpha) == Fraction(37, 42)
        assert exact(critic.beta) == Fraction(9, 22)
        assert critic.price == 2

    def test_what_was_planted_is_found_again(self):
        # Seed fixed; a rate leaves its 99.9 % interval by chance once in a thousand, and there are seven.
        model = fit_critics(planted_records(TRUE, 800, seed=5), PRICES)
        pairs = [(model.prior, 0.6), (model.kernel.fix, 0.25), (model.kernel.breaks, 0.1)]
        for critic in TRUE.critics:
            pairs += [
                (model.critic(critic.name).alpha, critic.alpha),
                (model.critic(critic.name).beta, critic.beta),
            ]
        for rate, truth in pairs:
            assert truth in rate.interval(0.999)

    def test_a_thin_stratum_warns_and_widens_at_the_same_mean(self):
        thin = fit(made(40, FEWEST - 1, 36, 2), {"test": 2})
        assert exact(thin.model.critic("test").beta) == Fraction(3, 6)
        assert thin.warnings == ("only 4 wrong candidates: rates among them are widened",)
        assert thin.model.meta["warnings"] == list(thin.warnings)
        from refork_methods.decide import BetaRate

        assert thin.model.critic("test").beta.interval().width > BetaRate(2, 4).interval().width
        assert fit(made(40, FEWEST, 36, 2), {"test": 2}).warnings == ()

    def test_few_verdicts_in_a_large_stratum_warn_too(self):
        records = made(40, 10, 36, 2) + [
            Record(f"j{n}", "0", n < 10, {"rare": True if n % 10 < 3 else None}) for n in range(20)
        ]
        found = fit(records, {"test": 2, "rare": 1}, critics=["rare"])
        assert "rare judged only 3 wrong candidates: its rate there is widened" in found.warnings

    @pytest.mark.parametrize(("right", "wrong"), [(10, 0), (0, 10)])
    def test_a_missing_stratum_is_refused(self, right, wrong):
        with pytest.raises(BadInput, match=f"{right} right and {wrong} wrong"):
            fit_critics(made(right, wrong), {"test": 2})

    def test_a_critic_with_a_missing_side_is_refused(self):
        records = [Record(f"i{n}", "0", n < 8, {"test": True if n < 8 else None}) for n in range(16)]
        with pytest.raises(
            BadInput, match="'test' judged no wrong candidate, so one side of its table is missing"
        ):
            fit_critics(records, {"test": 2})

    def test_unknown_verdicts_are_left_out_of_the_rates_not_failed(self):
        records = made(40, 20, 36, 8) + [Record(f"x{n}", "0", True, {"test": None}) for n in range(10)]
        found = fit(records, {"test": 2})
        assert found.critics[0].right == (36, 40)
        assert found.critics[0].unknown == 10
        assert exact(found.model.critic("test").alpha) == Fraction(37, 42)

    def test_candidates_without_an_outcome_are_counted_never_wrong(self):
        lost = [Record(f"x{n}", "0", None, {"test": False}, missing="oracle error") for n in range(30)]
        found = fit(made(40, 20, 36, 8) + lost, {"test": 2})
        assert exact(found.model.prior) == Fraction(41, 62)
        assert found.dropped == {"oracle error": 30}
        assert "30 candidates dropped: oracle error" in found.warnings

    def test_an_empty_patch_counts_as_wrong_and_failing(self):
        empty = [Record(f"x{n}", "0", None, {}, empty=True) for n in range(10)]
        found = fit(made(40, 20, 36, 8) + empty, {"test": 2})
        assert found.critics[0].wrong == (8, 30)

    def test_an_unknown_price_is_not_0(self):
        with pytest.raises(BadInput, match="price of 'test' is unknown, and unknown is not 0"):
            fit_critics(made(10, 10))

    def test_a_negative_price_is_refused(self):
        with pytest.raises(BadInput, match="price of critic 'test'"):
            fit_critics(made(10, 10), {"test": -1})

    def test_an_unknown_critic_is_refused_and_one_that_misleads_is_told(self):
        with pytest.raises(BadInput, match="no record has critic 'lint'"):
            fit_critics(made(10, 10), {"lint": 1}, critics=["lint"])
        assert fit(made(10, 10, 2, 8), {"test": 1}).warnings == (
            "test passes wrong candidates more often than right ones",
        )

    def test_the_policy_file_keeps_it_all(self, tmp_path):
        model = fit_critics(planted_records(TRUE, 50, seed=1), PRICES)
        write_policy(tmp_path / "p.json", model)
        assert read_policy(tmp_path / "p.json")[0] == model
        text = (tmp_path / "p.json").read_text()
        (tmp_path / "p.json").write_text(text.replace('"price": 2', '"price": 3'))
        with pytest.raises(BadInput, match="changed after it was written"):
            read_policy(tmp_path / "p.json")
        lines = [line for line in text.splitlines() if '"digest"' not in line]
        (tmp_path / "p.json").write_text("\n".join(lines))
        assert read_policy(tmp_path / "p.json")[0] == model

    def test_instances_it_was_fitted_on_are_refused(self):
        records = planted_records(TRUE, 20)
        model = fit_critics(records, PRICES)
        with pytest.raises(BadInput, match="fitted on 20 instances of these records"):
            refuse_fitted(model, records)
        refuse_fitted(model, planted_records(TRUE, 20, prefix="other"))


def test_a_prior_without_a_draw_is_said_to_be_none():
    refined_only = [Record(f"i{n}", "0", n % 3 > 0, {"test": n % 2 > 0}, step=1) for n in range(12)]
    assert any("nothing is known of the prior" in words for words in fit(refined_only, {"test": 1}).warnings)
    assert not any("prior" in words for words in fit(made(6, 6, 4, 2), {"test": 1}).warnings)


class TestKernel:
    def test_the_example_of_the_release(self):
        pairs = [(False, n < 9) for n in range(44)] + [(True, n >= 10) for n in range(68)]
        kernel = count_steps(steps(pairs)).kernel()
        assert exact(kernel.fix) == Fraction(10, 46)
        assert exact(kernel.breaks) == Fraction(11, 70)
        assert round(kernel.fix.mean, 3) == 0.217
        assert round(kernel.breaks.mean, 3) == 0.157

    def test_only_steps_whose_artifact_changed(self):
        pairs = [(False, False)] * 4 + [(False, True)] * 2
        same = [("a", "a")] * 3 + [("a", "b")] * 3
        assert exact(count_steps(steps(pairs, same)).kernel().fix) == Fraction(3, 8)
        assert exact(count_steps(steps(pairs, same), changed_only=True).kernel().fix) == Fraction(3, 5)
        assert count_steps(steps(pairs, same)).unchanged == 3
        with pytest.raises(BadInput, match="without its artifact"):
            count_steps(steps(pairs, [("a", None)] * 6), changed_only=True)

    def test_steps_with_a_lost_end_are_counted_apart(self):
        chain = [
            Record("a", "0", y, {}, step=s)
            for s, y in [(0, False), (1, None), (2, True), (4, True), (5, False)]
        ]
        found = count_steps(chain)
        assert (found.pairs, found.lost, found.broken) == (1, 3, 1)

    def test_draws_are_no_refinements(self):
        draws = [Record("a", str(n), n % 2 == 0, {"test": True}) for n in range(6)]
        model = fit_critics(draws + made(5, 5), {"test": 1})
        assert model.kernel == Kernel.resample(model.prior)
        assert model.meta["kernel"]["from"] == "resample"

    def test_the_kernel_of_a_fit(self):
        records = planted_records(TRUE, 60, seed=2)
        model = fit_critics(records, PRICES)
        assert model.kernel == count_steps(records).kernel()
        assert model.meta["kernel"]["from"] == "steps"
        given = Kernel(0.5, 0.5)
        assert fit_critics(records, PRICES, kernel=given).kernel == given
        few = [r for r in records if r.instance in ("task-0", "task-1") or r.step == 0]
        assert any("the kernel rests on" in words for words in fit(few, PRICES).warnings)


class TestBeliefs:
    def test_a_refinements_belief_starts_from_what_it_refined(self):
        chain = [
            Record("a", "0", None, {"test": True, "review": None}, step=0),
            Record("a", "0", None, {"test": False, "review": True}, step=1),
        ]
        found = beliefs(TRUE, chain)
        test, review = TRUE.critics
        first = after(0.6, test, True)
        assert found["a", "0", 0] == pytest.approx(first, abs=1e-15)
        second = after(after(refined(first, TRUE.kernel), test, False), review, True)
        assert found["a", "0", 1] == pytest.approx(second, abs=1e-15)

    def test_a_step_without_an_outcome_still_moves_the_belief_in_the_next(self):
        records = planted_records(TRUE, 30, seed=3)
        chain = [
            Record("z", "0", None, {"test": True, "review": True}, step=0, missing="oracle error"),
            Record("z", "0", True, {"test": None, "review": None}, step=1),
        ]
        _, got = leave_one_out([*records, *chain])
        without = fit_critics(records, PRICES)
        assert got[-1] == pytest.approx(beliefs(without, chain)["z", "0", 1], abs=1e-15)

    def test_leaving_one_instance_out_is_fitting_without_it(self):
        records = planted_records(TRUE, 30, seed=3)
        kept, got = leave_one_out(records)
        assert kept == records
        without = fit_critics([r for r in records if r.instance != "task-7"], PRICES)
        mine = [r for r in records if r.instance == "task-7"]
        want = beliefs(without, mine)
        at = [n for n, r in enumerate(kept) if r.instance == "task-7"]
        np.testing.assert_allclose(got[at], [want[r.instance, r.candidate, r.step] for r in mine], atol=1e-15)
