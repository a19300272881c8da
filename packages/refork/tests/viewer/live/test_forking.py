"""Forks from the page: the same draws as `refork fork`, in batches, one at a time, stopped when asked."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from refork import MatchJudge, Remove, Tree, compare, fork
from refork.errors import BadChange, BadInput, CannotDo
from refork.forking.recorded import recorded_pair
from refork.viewer.live.forking import Forking, ForkSetup, Wish, _batches
from support.viewer_tree import grow, policy


@pytest.fixture
def tree(tmp_path):
    return grow(tmp_path / "tree.db")


def forking(tree, actor=None):
    return Forking(
        ForkSetup(actor or policy(), lambda trajectory: None, MatchJudge("right"), "script"),
        lambda name: tree.file,
    )


def wish(tree, **changed):
    return replace(Wish("tree.db", tree.guess, 1, ("replace:1: think",), 20), **changed)


def over(desk, job, within=900.0):
    end = time.monotonic() + within
    while desk.job(job.id).state == "running":
        assert time.monotonic() < end, "the fork does not end"
        time.sleep(0.005)
    return desk.job(job.id)


def test_it_draws_what_the_library_draws(tree, tmp_path):
    desk = forking(tree)
    job = over(desk, desk.begin(wish(tree)))
    assert (job.state, job.done, job.total, job.error) == ("done", 40, 40, None)
    told = job.to_json()["card"]
    other = grow(tmp_path / "other.db")
    from refork import Replace

    with Tree.open(other.file) as again:
        point = again.at(other.guess, 1)
        arms = [
            fork(point, policy(), 20, change, judge=MatchJudge("right"))
            for change in (None, Replace(1, text=" think"))
        ]
        effect = compare(*arms)
    assert told["effect"]["difference"] == pytest.approx(effect.difference, rel=1e-5)
    assert (told["control"], told["changed"]) == tuple(arm.record.id for arm in arms)
    with Tree.open(tree.file, "r") as stored:
        assert (
            compare(*recorded_pair(stored, told["control"], told["changed"])).difference == effect.difference
        )


def test_a_control_alone_and_draws_that_exist(tree):
    desk = forking(tree)
    alone = over(desk, desk.begin(wish(tree, changes=(), draws=10)))
    assert (alone.state, alone.total, alone.card["alone"]["graded"]) == ("done", 10, 10)
    assert alone.card["alone"]["scale"] == "rate"
    known = over(desk, desk.begin(wish(tree, changes=("remove:1",), draws=24)))
    assert known.card["changed"] == tree.changed  # nothing was drawn anew
    assert [job.id for job in desk.jobs()] == ["1", "2"]


class Slow:
    """The scripted policy, which waits before every batch until it is let go on."""

    def __init__(self):
        self.inner = policy()
        self.card = self.inner.card
        self.go = threading.Semaphore(0)
        self.asked = threading.Event()

    def sample(self, requests, settings):
        self.asked.set()
        assert self.go.acquire(timeout=900)
        return self.inner.sample(requests, settings)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_it_stops_and_keeps_what_is_drawn(tree):
    actor = Slow()
    desk = forking(tree, actor)
    job = desk.begin(wish(tree, changes=("force: think",), draws=512))
    assert actor.asked.wait(900)
    with pytest.raises(CannotDo, match="another fork"):
        desk.begin(wish(tree))
    assert desk.stop(job.id).state == "running"
    for _ in range(4):
        actor.go.release()
    assert over(desk, job).state == "stopped"
    again = over(desk, desk.begin(wish(tree, draws=1, changes=())))
    assert again.state == "done"


def test_closing_stops_what_runs(tree):
    actor = Slow()
    desk = forking(tree, actor)
    job = desk.begin(wish(tree, changes=("force: think",), draws=512))
    assert actor.asked.wait(900)
    actor.go.release(8)
    desk.close()
    assert desk.job(job.id).state == "stopped"


def test_what_goes_wrong_is_told(tree):
    desk = forking(tree)
    unknown = over(desk, desk.begin(wish(tree, node="f" * 32)))
    assert (unknown.state, "no node" in unknown.error) == ("failed", True)
    beyond = over(desk, desk.begin(wish(tree, token=99)))
    assert "beyond this step" in beyond.error


def test_a_fault_of_ours_is_not_told_in_detail(tree, monkeypatch, caplog):
    monkeypatch.setattr("refork.viewer.live.forking.fork_both", lambda *a, **k: 1 / 0)
    desk = forking(tree)
    failed = over(desk, desk.begin(wish(tree)))
    assert failed.error == "the fork failed; the server's log says how"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"changes": ("policy:hf:/etc",)}, "not a change that the page may ask for"),
        ({"changes": ("world:web",)}, "not a change that the page may ask for"),
        ({"changes": ("remove:x",)}, "not a number"),
        ({"changes": ("nonsense",)}, "not a change"),
        ({"changes": ("remove:1", "policy:hf:x")}, "not a change"),
    ],
)
def test_changes_that_are_not_for_the_page(tree, changed, why):
    with pytest.raises(BadChange, match=why):
        forking(tree).begin(wish(tree, **changed))


def test_too_many_draws_and_unknown_jobs(tree):
    desk = forking(tree)
    for draws in (0, 1025):
        with pytest.raises(BadInput, match="it must be 1 to 1024"):
            desk.begin(wish(tree, draws=draws))
    with pytest.raises(BadInput, match="no fork '9'"):
        desk.job("9")


def test_batches_double():
    assert _batches(1) == [1]
    assert _batches(8) == [8]
    assert _batches(100) == [8, 16, 32, 64, 100]


def test_another_seed_is_another_arm(tree):
    desk = forking(tree)
    one, two = (
        over(desk, desk.begin(wish(tree, changes=("remove:1",), seed=seed, draws=4))) for seed in (0, 1)
    )
    assert one.card["control"] != two.card["control"]
    with Tree.open(tree.file) as stored:
        arm = fork(stored.at(tree.guess, 1), policy(), 4, Remove(1), judge=MatchJudge("right"), seed=1)
        assert arm.tokens == 0


def test_a_change_that_cannot_be_made_is_refused_before_the_control_is_drawn(tree):
    with Tree.open(tree.file) as stored:
        before = sum(len(stored.draws(arm.id)) for arm in stored.forks())
    desk = forking(tree)
    failed = over(desk, desk.begin(wish(tree, changes=("remove:5",))))
    assert "cannot take 5" in failed.error
    with Tree.open(tree.file) as stored:
        assert sum(len(stored.draws(arm.id)) for arm in stored.forks()) == before
