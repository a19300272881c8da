"""What nominates a token takes no part in judging it: every stage of a run has noise of its own."""

from __future__ import annotations

import pytest

from refork.forking import fork
from refork.sampling.noise import stream_of
from refork_methods.cliff.candidates import candidates
from refork_methods.cliff.intervene import contrast, intervene
from refork_methods.cliff.scan import nominate, token_potential
from refork_methods.cliff.verify import verify


@pytest.fixture
def stages(planted, judge, tree):
    """Addresses of the noise, (seed, stream) of every arm that each stage of one seed has drawn."""
    _, policy, end = planted
    found = {}

    def drawn(name, stage):
        before = {arm.id for arm in tree.forks()}
        done = stage()
        found[name] = {(arm.seed, arm.stream) for arm in tree.forks() if arm.id not in before}
        return done

    scanned = drawn("scan", lambda: token_potential(end, policy, 64, judge=judge, seed=1))
    found["scan"].add((1, stream_of("passage", end.address)))
    nominees = nominate(scanned)
    sides = [point for n in nominees for point in (n.before, n.after) if point is not None]
    # What anybody draws at these points under the run's own seed may be why the run looks there.
    drawn("forks", lambda: [fork(point, policy, 64, judge=judge, seed=1) for point in sides])
    cliffs = drawn("re-test", lambda: verify(nominees, policy, 64, judge=judge, seed=1))
    real = [cliff for cliff in cliffs if cliff.real]
    assert real
    drawn("candidates", lambda: candidates(real, policy, 2, 64, judge=judge, seed=1))
    places = [cliff.nominee for cliff in real]
    drawn("contrast", lambda: contrast(places, policy, 64, judge=judge, seed=1))
    return found


@pytest.mark.parametrize("judged", ["re-test", "candidates", "contrast"])
def test_no_stage_judges_on_noise_that_another_has_used(stages, judged):
    assert stages[judged], "it drew nothing: it took what another stage had drawn"
    for name, noise in stages.items():
        if name != judged:
            assert not noise & stages[judged], name


@pytest.mark.parametrize("reuse", [True, False])
def test_every_look_of_a_scan_draws_anew(planted, judge, tree, reuse):
    """A look that drew under an earlier one's seed would count its draws twice, and add nothing."""
    _, policy, end = planted
    before = {arm.id for arm in tree.forks()}
    # At a drop of just what is asked for no look decides, so that all three are taken.
    found = token_potential(end, policy, 64, judge=judge, seed=2, reuse=reuse, delta0=0.68)
    arms = [arm for arm in tree.forks() if arm.id not in before]
    assert len({arm.seed for arm in arms}) == 3, "looks of 16, 16 and 32 draws"
    assert found.curve.sampled == sum(len(tree.draws(arm.id)) for arm in arms)


def test_interventions_of_one_place_share_their_noise(planted, judge):
    _, policy, end = planted
    at = nominate(token_potential(end, policy, 64, judge=judge, seed=1))[0].before
    gone, kept = (intervene(at, policy, mode, 16, judge=judge, seed=4) for mode in ("delete", "keep"))
    assert (gone.record.seed, gone.record.stream) == (kept.record.seed, kept.record.stream)
