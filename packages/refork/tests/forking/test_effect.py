from __future__ import annotations

from dataclasses import asdict, fields, replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multinomial

from refork import stats
from refork.errors import BadInput
from refork.forking import (
    Ban,
    Force,
    Fork,
    Remove,
    Set,
    arm_summary,
    compare,
    compare_until,
    fork,
    fork_both,
    sweep,
    trace_report,
)
from refork.forking import effect as effect_module
from refork.forking.change import Diff
from refork.forking.effect import is_paired
from refork.forking.settings import ForkSettings
from refork.growing.plant import plant, plant_prompt
from refork.judge import MatchJudge, Verdict
from refork.policies.scripted import ScriptedPolicy
from refork.progress import silent
from refork.tree.tree import Tree
from support.chain import PLAIN, TABLE
from support.worlds import TwoTurns


def arms(start, policy, judge, draws=300, seed=0):
    base = fork(start, policy, draws, Force(text=" guess"), settings=PLAIN, judge=judge, seed=seed)
    other = fork(start, policy, draws, Force(text=" think"), settings=PLAIN, judge=judge, seed=seed)
    return base, other


def test_a_known_effect_is_inside_its_interval(start, policy, judge):
    effect = compare(*arms(start, policy, judge))
    assert effect.low < 0.7 < effect.high
    assert effect.p < 1e-6
    assert effect.paired
    assert effect.draws == 300
    assert "raises success" in effect.sentence


def test_the_difference_is_the_mean_of_the_pairs(start, policy, judge):
    base, other = arms(start, policy, judge, 50)
    effect = compare(base, other)
    pairs = np.array(other.values()) - np.array(base.values())
    assert effect.difference == pytest.approx(pairs.mean())
    assert effect.base.rate == pytest.approx(np.mean(base.values()))


def test_pairing_narrows_the_interval(start, policy, judge):
    base = fork(start, policy, 400, settings=PLAIN, judge=judge)
    other = fork(start, policy, 400, Set(temperature=0.9), settings=PLAIN, judge=judge)
    effect = compare(base, other)
    assert effect.high - effect.low < 0.7 * (effect.unpaired_high - effect.unpaired_low)


def test_arms_with_other_noise_are_compared_unpaired(start, policy, judge):
    base, _ = arms(start, policy, judge, 60)
    _, other = arms(start, policy, judge, 60, seed=9)
    effect = compare(base, other)
    assert not effect.paired
    assert (effect.low, effect.high) == (effect.unpaired_low, effect.unpaired_high)


def test_ungraded_draws_leave_with_their_partner(start, policy, judge):
    base, other = arms(start, policy, judge, 40)

    def sometimes(trajectory):
        return None if trajectory.leaf.noise.draw % 4 == 0 else float("right" in trajectory.leaf.text)

    effect = compare(base, other, score=sometimes)
    assert (effect.draws, effect.ungraded) == (30, 10)
    assert effect.score == "sometimes"


def test_arms_of_different_length_are_compared_on_what_they_share(start, policy, judge):
    base, _ = arms(start, policy, judge, 20)
    _, other = arms(start, policy, judge, 30)
    assert compare(base, other).draws == 20


def test_no_effect_says_so(start, policy, judge):
    base = fork(start, policy, 50, settings=PLAIN, judge=judge)
    effect = compare(base, base)
    assert effect.sentence.startswith("no clear effect")
    assert effect.low < 0 < effect.high, "no pair differs, and still the interval has width"


def test_one_pair_is_refused(start, policy, judge):
    base = fork(start, policy, 1, settings=PLAIN, judge=judge)
    with pytest.raises(BadInput, match="1 of 1 pairs"):
        compare(base, base)


def test_a_clear_answer_stops_early(start, policy, judge):
    effect = compare_until(
        start, policy, Force(text=" guess"), batch=32, max_draws=512, settings=PLAIN, judge=judge
    )
    assert effect.decided
    assert effect.high < 0
    assert effect.draws < 512
    assert effect.looks == effect.draws // 32


def test_an_unclear_answer_stops_at_the_limit_and_says_so(start, policy, judge):
    effect = compare_until(
        start, policy, Set(temperature=0.98), batch=16, max_draws=32, settings=PLAIN, judge=judge
    )
    assert effect.decided is False
    assert effect.draws == 32


def test_a_margin_decides_that_nothing_happens(start, policy, judge):
    effect = compare_until(
        start, policy, Set(max_tokens=9), batch=64, max_draws=512, margin=0.2, settings=PLAIN, judge=judge
    )
    assert effect.decided
    assert -0.2 <= effect.low <= effect.high <= 0.2


class Told(Fork):
    """An arm whose scores are told, not drawn."""

    __slots__ = ("told",)

    def values(self, score="success"):
        return list(self.told)


def told(arm, scores):
    made = Told(*(getattr(arm, field.name) for field in fields(Fork)))
    object.__setattr__(made, "draws", made.draws[: len(scores)])
    object.__setattr__(made, "told", scores)
    return made


#: Pairs of draws of which both succeed, only the changed one, only the control, neither.
CELLS = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0))
BATCH, MOST, ERROR = 2, 6, 0.25


def tables(pairs):
    """All counts of the four cells among so many pairs."""
    return [counts for counts in product(range(pairs + 1), repeat=4) if sum(counts) == pairs]


@pytest.fixture(scope="module")
def decisions():
    """What ``compare_until`` says at a look, for every table of up to six pairs of 0 and 1.

    What it says depends on the counts alone: the sequence's own tests show that order does not enter.
    """
    found = {}
    with Tree.memory() as tree, pytest.MonkeyPatch.context() as patch:
        policy = ScriptedPolicy.from_chain(TABLE)
        start = plant_prompt(tree, policy, "Well?")
        arm = fork(start, policy, MOST, settings=PLAIN, judge=MatchJudge("right"))
        for pairs in range(BATCH, MOST + 1, BATCH):
            for counts in tables(pairs):
                outcomes = np.repeat(np.array(CELLS), counts, axis=0)

                def drawn(point, policy, draws, change, *, outcomes=outcomes, **shared):
                    return tuple(told(arm, outcomes[:, side].tolist()) for side in (0, 1))

                patch.setattr(effect_module, "fork_both", drawn)
                found[counts] = compare_until(
                    start,
                    policy,
                    Remove(1),
                    error=ERROR,
                    batch=pairs,
                    max_draws=pairs,
                    judge=MatchJudge("right"),
                )
    return found


def stopped(decisions, law):
    """The chance of every table at which drawing stops, under the chances of the four cells: exact."""
    alive, ended = {(0, 0, 0, 0): 1.0}, {}
    steps = {
        counts: multinomial.pmf(counts, BATCH, law)
        for counts in tables(BATCH)
        if multinomial.pmf(counts, BATCH, law)
    }
    for pairs in range(BATCH, MOST + 1, BATCH):
        fresh = {}
        for before, weight in alive.items():
            for more, chance in steps.items():
                counts = tuple(np.add(before, more).tolist())
                fresh[counts] = fresh.get(counts, 0.0) + weight * chance
        over = {c for c in fresh if decisions[c].decided or pairs == MOST}
        ended |= {c: fresh[c] for c in over}
        alive = {c: weight for c, weight in fresh.items() if c not in over}
    assert sum(ended.values()) == pytest.approx(1.0)
    return ended


# Independent arms, arms that mostly agree, arms that always differ; equal chances of success.
SAME = [(0.25, 0.25, 0.25, 0.25), (0.09, 0.21, 0.21, 0.49), (0.4, 0.1, 0.1, 0.4), (0.0, 0.5, 0.5, 0.0)]
# And different ones: independent (0.9 against 0.5), no loss, every pair a gain or a loss.
APART = [(0.45, 0.05, 0.45, 0.05), (0.3, 0.5, 0.0, 0.2), (0.0, 0.7, 0.3, 0.0), (0.1, 0.85, 0.0, 0.05)]


@pytest.mark.parametrize("law", SAME)
def test_stopping_when_clear_keeps_its_error_rate_exactly(decisions, law):
    ended = stopped(decisions, law)
    alarms = sum(weight for counts, weight in ended.items() if decisions[counts].decided)
    assert 0 < alarms <= ERROR
    # p at the stopping time: at most a with probability at most a, for every a there is.
    for a in {decisions[counts].p for counts in ended} - {1.0}:
        assert sum(weight for counts, weight in ended.items() if decisions[counts].p <= a) <= a


@pytest.mark.parametrize("law", SAME + APART)
def test_every_interval_covers_at_the_stopping_time_exactly(decisions, law):
    ended = stopped(decisions, law)
    control, changed = law[0] + law[2], law[0] + law[1]
    covered = np.zeros(4)
    for counts, weight in ended.items():
        found = decisions[counts]
        inside = (
            found.low <= changed - control <= found.high,
            found.base.low <= control <= found.base.high,
            found.other.low <= changed <= found.other.high,
            found.unpaired_low <= changed - control <= found.unpaired_high,
        )
        covered += weight * np.array(inside)
    assert (covered >= 1 - ERROR).all()


def test_intervals_at_the_stopping_time_are_tests_turned_round(decisions):
    """Each end is where the arm's own test of "this is the mean" has just the stated p."""
    for counts in ((2, 2, 1, 1), (1, 4, 0, 1), (0, 1, 5, 0)):
        found = decisions[counts]
        x, y = np.repeat(np.array(CELLS), counts, axis=0).T
        assert found.base.rate == pytest.approx(x.mean())
        assert found.other.rate == pytest.approx(y.mean())
        for scores, arm in ((x, found.base), (y, found.other)):
            for end in {arm.low, arm.high} - {0.0, 1.0}:
                assert stats.anytime_test(2 * scores - 1, 2 * end - 1).p == pytest.approx(ERROR, rel=1e-4)
        for end in {found.low, found.high} - {-1.0, 1.0}:
            assert stats.anytime_test(y - x, end).p == pytest.approx(ERROR, rel=1e-4)
        assert found.p == pytest.approx(stats.anytime_test(y - x).p)
        halves = [stats.mean_sequence(scores, ERROR / 2) for scores in (x, y)]
        assert found.unpaired_low == pytest.approx(halves[1].low - halves[0].high)
        assert found.unpaired_high == pytest.approx(halves[1].high - halves[0].low)
        assert found.level == 1 - ERROR


def test_a_wrong_error_rate_is_refused_before_anything_is_drawn(start, policy, judge, tree):
    size = len(tree)
    for error in (0.0, 1.0, 1.5):
        with pytest.raises(BadInput, match=f"the error rate is {error}"):
            compare_until(start, policy, Remove(1), error=error, settings=PLAIN, judge=judge)
    with pytest.raises(BadInput, match=start.address[:12]):
        compare_until(start, policy, Remove(1), settings=PLAIN)
    assert len(tree) == size


def test_a_world_that_grades_needs_no_judge(start, policy, judge, monkeypatch):
    asked = []
    monkeypatch.setattr(effect_module, "need_grader", lambda *given: asked.append(given))
    one, two = (told(arm, [0.0, None, 1.0, 1.0]) for arm in arms(start, policy, judge, 4))
    object.__setattr__(two, "told", [0.0, 1.0, None, 1.0])
    monkeypatch.setattr(effect_module, "fork_both", lambda *_, **__: (one, two))
    effect = compare_until(start, policy, Remove(1), batch=4, max_draws=4, world="a world", score="marks")
    assert asked == [("marks", "a world", None, start.address)]
    assert (effect.draws, effect.ungraded, effect.difference) == (2, 2, 0.0), "a pair needs both"


@pytest.mark.parametrize(
    ("low", "high", "margin", "decided"),
    [
        (0.0, 0.5, 0.0, False), (0.001, 0.5, 0.0, True), (-0.5, 0.0, 0.0, False), (-0.5, -0.001, 0.0, True),
        (-0.2, 0.2, 0.2, True), (-0.3, 0.1, 0.2, False), (-0.1, 0.3, 0.2, False), (-0.1, 0.1, 0.0, False),
        (-0.5, 0.5, 0.2, False), (0.0, 0.0, 0.0, False),
    ],
)  # fmt: skip
def test_what_makes_an_answer_clear(start, policy, judge, monkeypatch, low, high, margin, decided):
    pair = tuple(told(arm, [0.0, 1.0]) for arm in arms(start, policy, judge, 2))
    monkeypatch.setattr(effect_module, "fork_both", lambda *_, **__: pair)
    interval = stats.Interval(0.0, low, high, 0.95, "told")
    monkeypatch.setattr(effect_module.stats, "confidence_sequence", lambda *_, **__: interval)
    effect = compare_until(start, policy, Remove(1), batch=2, max_draws=2, margin=margin, judge=judge)
    assert effect.decided is decided
    assert (effect.low, effect.high) == (low, high)


def test_bounds_of_each_arm_alone_share_the_error():
    x, y = np.array([0.0, 1.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.5, 1.0])
    base, other = (stats.mean_sequence(scores, 0.1) for scores in (x, y))
    assert effect_module._apart(x, y, 0.2) == (other.low - base.high, other.high - base.low)


@pytest.fixture
def tasks(tree, policy, judge):
    """Pairs of arms with told scores at points of three tasks, one draw of them ungraded."""
    scores = [
        ([0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0]),
        ([1.0, 0.0, 1.0], [1.0, 1.0, 1.0]),
        ([0.0, 1.0, None, 0.0], [0.0, 0.0, 1.0, 1.0]),
    ]
    found = []
    for task, (control, changed) in enumerate(scores):
        start = plant_prompt(tree, policy, f"Task {task}?")
        base = fork(start, policy, 5, settings=PLAIN, judge=judge)
        other = fork(start, policy, 5, Force(text=" think"), settings=PLAIN, judge=judge)
        found.append((told(base, control), told(other, changed)))
    return found


def test_points_of_several_tasks_are_compared_with_tasks_as_what_counts(tasks):
    effect = compare(tasks)
    x, y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0.0]), np.array([1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1.0])
    names = [0] * 5 + [1] * 3 + [2] * 3
    wanted = stats.clustered_difference(x, y, names)
    assert effect.difference == pytest.approx((y - x).mean())
    assert (effect.low, effect.high, effect.p) == pytest.approx(
        (wanted.interval.low, wanted.interval.high, wanted.p)
    )
    assert effect.method == "adjusted paired t, clustered"
    arms = [stats.clustered_mean(values, names) for values in (x, y)]
    assert (effect.base.rate, effect.base.low, effect.base.high) == pytest.approx(
        (x.mean(), arms[0].low, arms[0].high)
    )
    assert (effect.other.rate, effect.other.low, effect.other.high) == pytest.approx(
        (y.mean(), arms[1].low, arms[1].high)
    )
    # Without pairing: the distances of the arms' own ends, squared and added (Newcombe's construction).
    down = np.sqrt((arms[1].estimate - arms[1].low) ** 2 + (arms[0].high - arms[0].estimate) ** 2)
    up = np.sqrt((arms[1].high - arms[1].estimate) ** 2 + (arms[0].estimate - arms[0].low) ** 2)
    assert (effect.unpaired_low, effect.unpaired_high) == pytest.approx(
        (effect.difference - down, effect.difference + up)
    )
    assert (effect.draws, effect.ungraded, effect.points, effect.tasks) == (11, 1, 3, 3)
    assert (effect.point, effect.what, effect.after_text) == ("3 points of 3 tasks", "force", " think")
    assert effect.paired
    assert "3 points of 3 tasks" in effect.sentence
    less = compare(tasks, level=0.5)
    assert less.high < effect.high
    for arm, values in ((less.base, x), (less.other, y)):
        wanted = stats.clustered_mean(values, names, 0.5)
        assert (arm.low, arm.high) == pytest.approx((wanted.low, wanted.high))
    assert compare(tasks[:2]).tasks == 2, "two tasks are enough"


def test_the_order_of_the_tasks_does_not_enter(tasks):
    one, two = compare(tasks), compare(tasks[::-1])
    assert (one.low, one.high, one.p, one.base) == pytest.approx((two.low, two.high, two.p, two.base))


def test_points_of_one_task_are_one_task(tree, policy, judge, tasks):
    # The same figures at a second point of the first task: as many tasks, and the same root.
    base = fork(tasks[0][0].point, policy, 12, settings=PLAIN, judge=judge)
    point = tree.at(
        next(trajectory.leaf for trajectory in base.leaves() if " guess" in trajectory.leaf.text), 1
    )
    arms = [fork(point, policy, 5, change, judge=judge) for change in (None, Remove(1))]
    more = [
        (told(arm, list(tasks[0][i].told)) if i == 0 else told(arm, list(tasks[0][1].told)))
        for i, arm in enumerate(arms)
    ]
    effect = compare([*tasks, tuple(more)])
    assert (effect.points, effect.tasks) == (4, 3)
    assert effect.what == "4 changes", "they are not all the same"
    x = np.array([0, 0, 1, 0, 0] * 2 + [1, 0, 1, 0, 1, 0.0])
    y = np.array([1, 1, 1, 0, 1] * 2 + [1, 1, 1, 0, 0, 1.0])
    wanted = stats.clustered_difference(x, y, [0] * 10 + [1] * 3 + [2] * 3)
    assert effect.difference == pytest.approx((y - x).mean())
    assert (effect.low, effect.high) == pytest.approx((wanted.interval.low, wanted.interval.high))
    with pytest.raises(BadInput, match="all of one task"):
        compare([tasks[0], tuple(more)])


def test_a_list_of_one_pair_is_that_pair(start, policy, judge):
    base, other = arms(start, policy, judge, 40)
    assert compare([(base, other)]) == compare(base, other)
    assert (compare(base, other).points, compare(base, other).tasks) == (1, 1)
    _, far = arms(start, policy, judge, 40, seed=9)
    assert compare([(base, far)], level=0.8) == compare(base, far, level=0.8)


def test_several_points_are_paired_only_where_all_arms_share_their_noise(tree, policy, judge, tasks):
    start = tasks[2][0].point
    far = fork(start, policy, 5, Force(text=" think"), settings=PLAIN, judge=judge, seed=3)
    mixed = [*tasks[:2], (tasks[2][0], told(far, [0.0, 0.0, 1.0, 1.0]))]
    effect, shared = compare(mixed), compare(tasks)
    assert shared.paired
    assert not effect.paired
    assert (effect.low, effect.high) == (shared.low, shared.high), "valid for either: tasks are what counts"


def test_lists_that_say_nothing_are_refused(tasks):
    with pytest.raises(BadInput, match="named twice"):
        compare([tasks[0], tasks[1], tasks[0]])
    with pytest.raises(BadInput, match="no arms"):
        compare([])
    with pytest.raises(BadInput, match="one arm"):
        compare(tasks[0][0])


def test_what_several_points_cost_is_counted_once_per_arm(tasks):
    base, other = tasks[0]
    again = replace(other, record=replace(other.record, id="another"))
    object.__setattr__(again, "told", other.told)
    effect = compare([*tasks, (base, again)])
    every = [arm for pair in tasks for arm in pair]
    assert effect.tokens == sum(arm.tokens for arm in every) + again.tokens
    assert effect.seconds == pytest.approx(sum(arm.seconds for arm in every) + again.seconds)
    assert effect.errors == 0


def test_a_control_that_two_calls_made_costs_what_both_took(start, policy, judge):
    """The second call finds the control's draws: it took nothing, and what the first took counts."""
    pairs = [
        fork_both(start, policy, 8, Ban(text=text), judge=judge, settings=PLAIN)
        for text in (" think", " guess")
    ]
    other = plant_prompt(start.tree, policy, "Now?")
    pairs.append(fork_both(other, policy, 8, Ban(text=" guess"), judge=judge, settings=PLAIN))
    for order in (pairs, pairs[::-1]):
        assert compare(order).tokens == sum(arm.tokens for pair in pairs for arm in pair)


def test_a_worlds_task_is_one_task_under_two_tokenizers(tree):
    table = {"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {"": 1.0}}
    agents = [ScriptedPolicy.from_chain(table), ScriptedPolicy.from_chain(table | {" zz": {"": 1.0}})]
    found = []
    for luck, name in ((1.0, "two-turns"), (0.5, "two-turns-of-luck")):
        world = TwoTurns(luck, name)
        for agent in agents:
            for at in plant(tree, agent, world, world.tasks("train", 2)):
                found.append(fork_both(at, agent, 4, Ban(text=" b"), world=world, settings=PLAIN))
    assert len({base.point.node.id for base, _ in found}) == 8
    assert compare(found).tasks == 4
    with pytest.raises(BadInput, match="all of one task"):
        compare([found[0], found[2]])


CLEAR = effect_module.Effect(
    what="force", before_text="a", after_text="b", score="success", point="p",
    base=effect_module.Rate(0.25, 0.1, 0.4), other=effect_module.Rate(0.5, 0.3, 0.7), difference=0.25,
    low=0.05, high=0.95, level=0.9, p=0.01, method="by hand", paired=True, draws=10, ungraded=0, errors=0,
    unpaired_low=0.0, unpaired_high=0.5, tokens=1, seconds=1.0,
)  # fmt: skip


def test_an_effect_in_words():
    said = "'force' raises success from 0.250 to 0.500 (+0.250, 90 % interval +0.050 to +0.950)"
    assert CLEAR.sentence == said
    down = replace(CLEAR, difference=-0.25, low=-0.45, high=-0.05, level=0.995)
    assert down.sentence == (
        "'force' lowers success from 0.250 to 0.500 (-0.250, 99.5 % interval -0.450 to -0.050)"
    )
    for low, high in ((0.0, 0.5), (-0.5, 0.0), (-0.25, 0.5)):
        assert replace(CLEAR, low=low, high=high, points=1, tasks=1).sentence == (
            f"no clear effect of 'force' on success: +0.250 (90 % interval {low:+.3f} to {high:+.3f})"
        )
    several = replace(CLEAR, points=2, tasks=2)
    assert several.sentence == said[:-1] + ", 2 points of 2 tasks)"


@pytest.mark.parametrize(
    ("base", "other", "caution"),
    [
        (
            0.0,
            0.5,
            "the changed arm alone was answered by a simulator, so this is no effect of the change alone",
        ),
        (0.5, 0.0, "the control alone was answered by a simulator, so this is no effect of the change alone"),
        (0.25, 1.0, "both arms were answered by a simulator: this is an effect in the simulator"),
    ],
)
def test_a_simulators_answers_are_told_wherever_the_effect_is(base, other, caution):
    told = replace(CLEAR, base_simulated=base, other_simulated=other)
    assert told.caution == caution
    assert told.sentence == f"{CLEAR.sentence}; {caution}"
    assert replace(told, low=-1.0).sentence.endswith(f"; {caution}")
    assert told.to_json()["caution"] == caution
    assert CLEAR.caution is None
    assert CLEAR.to_json() == asdict(CLEAR)


def test_answers_of_a_simulator_are_counted_by_draws():
    arms = [SimpleNamespace(simulated=share, draws=[None] * count) for share, count in ((0.5, 1), (1.0, 3))]
    assert effect_module._simulated(arms) == 0.875
    assert effect_module._simulated(arms[:1]) == 0.5


def one_arm(seed=0, stream=0, **card):
    card = {"kind": "local", "capabilities": ["paired"]} | card
    return SimpleNamespace(record=SimpleNamespace(policy=card, seed=seed, stream=stream))


def test_arms_share_their_noise_where_both_honour_it_in_one_way():
    remote = {"kind": "remote", "extra": {"seeds": "hash"}}
    paired = [
        (one_arm(), one_arm()),
        (one_arm(7, 3), one_arm(7, 3)),
        (one_arm(**remote), one_arm(**remote)),
        (one_arm(**remote), one_arm()),
        (one_arm(kind="remote"), one_arm(kind="remote", extra=None)),
    ]
    apart = [
        (one_arm(7), one_arm(8)),
        (one_arm(0, 3), one_arm(0, 4)),
        (one_arm(), one_arm(capabilities=[])),
        (one_arm(capabilities=[]), one_arm()),
        (one_arm(), SimpleNamespace(record=SimpleNamespace(policy={"kind": "local"}, seed=0, stream=0))),
        (one_arm(**remote), one_arm(kind="remote", extra={"seeds": "other"})),
        (one_arm(**remote), one_arm(kind="remote")),
    ]
    for base, other in paired:
        assert is_paired(base, other)
        assert is_paired(other, base)
    for base, other in apart:
        assert not is_paired(base, other)
        assert not is_paired(other, base)


def test_draws_that_failed_in_either_arm_are_counted(start, policy, judge):
    base, other = (told(arm, [0.0, 1.0, 1.0, 0.0, 1.0]) for arm in arms(start, policy, judge, 5))
    for arm, failed in ((base, (0, 1)), (other, (1, 2))):
        rows = [replace(d, end="error") if d.draw in failed else d for d in arm.draws]
        object.__setattr__(arm, "draws", type(arm.draws)(rows[::-1]))
    effect = compare(base, other)
    assert (effect.errors, effect.draws, effect.ungraded, effect.ties) == (3, 5, 0, base.ties + other.ties)
    assert effect.difference == 0.0
    assert (effect.tokens, effect.seconds) == (base.tokens + other.tokens, base.seconds + other.seconds)


def test_every_setting_reaches_both_arms_and_every_look_is_paid_for(start, policy, judge, monkeypatch):
    whole = [replace(arm, ties=7) for arm in arms(start, policy, judge, 6)]
    seen = []

    def drawn(point, given, draws, change, **shared):
        seen.append((point, given, draws, change, shared))
        outcomes = ([0.0, 1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
        return tuple(told(arm, scores[:draws]) for arm, scores in zip(whole, outcomes, strict=True))

    monkeypatch.setattr(effect_module, "fork_both", drawn)
    shared = {
        "settings": PLAIN, "world": None, "judge": judge, "seed": 7, "progress": print, "simulator": "sim",
        "backend": "away",
    }  # fmt: skip
    effect = compare_until(start, policy, Remove(1), batch=2, max_draws=5, **shared)
    assert [draws for _, _, draws, _, _ in seen] == [2, 4, 5]
    assert all((*row[:2], row[3], row[4]) == (start, policy, Remove(1), shared) for row in seen)
    looks = [drawn(start, policy, draws, None) for draws in (2, 4, 5)]
    assert effect.tokens == sum(arm.tokens for pair in looks for arm in pair)
    assert effect.seconds == pytest.approx(sum(arm.seconds for pair in looks for arm in pair))
    assert effect.ties == sum(arm.ties for pair in looks for arm in pair) == 3 * 2 * 7
    assert (effect.looks, effect.decided, effect.draws, effect.level) == (3, False, 5, 0.95)
    assert effect.method == "betting confidence sequence"


@pytest.mark.parametrize(("ungraded", "looks"), [(2, 2), (3, 3), (4, 3), (6, None)])
def test_looks_at_too_few_graded_pairs_decide_nothing(start, policy, judge, monkeypatch, ungraded, looks):
    """Two pairs a look, of which the first are not graded: only at the end is that refused."""
    whole = arms(start, policy, judge, 6)

    def drawn(point, given, draws, change, **shared):
        scores = [None] * ungraded + [1.0] * (6 - ungraded)
        return tuple(told(arm, scores[:draws]) for arm in whole)

    monkeypatch.setattr(effect_module, "fork_both", drawn)
    asked = {"batch": 2, "max_draws": 6, "margin": 1.0, "judge": judge}
    if looks is None:
        with pytest.raises(BadInput, match="only 0 of 6 pairs of draws have a score"):
            compare_until(start, policy, Remove(1), **asked)
        return
    effect = compare_until(start, policy, Remove(1), **asked)
    assert (effect.looks, effect.draws) == (looks, 2 * looks - ungraded)


def test_looks_of_thirty_two_up_to_five_hundred_and_twelve_draws(start, policy, judge, monkeypatch):
    arm = fork(start, policy, 4, settings=PLAIN, judge=judge)
    seen = []

    def drawn(point, given, draws, change, **shared):
        on = ForkSettings(**shared)
        seen.append((draws, on.seed, on.progress))
        made = told(arm, [0.0, 1.0, 1.0, 0.0])
        return made, told(arm, [1.0, 0.0, 1.0, 0.0])

    monkeypatch.setattr(effect_module, "fork_both", drawn)
    effect = compare_until(start, policy, Remove(1), settings=PLAIN, judge=judge)
    assert [draws for draws, _, _ in seen] == list(range(32, 513, 32))
    assert {(seed, progress) for _, seed, progress in seen} == {(0, silent)}
    assert effect.decided is False, "no margin was given, so that nothing happens is no answer"
    assert effect.level == 0.95


@pytest.mark.parametrize(("margin", "looks"), [(0.6875, 2), (0.6, 3), (0.0, 3)])
def test_a_margin_is_kept_by_both_ends(start, policy, judge, monkeypatch, margin, looks):
    """The interval of equal pairs is what the sequence says; a margin at its very end decides."""
    arm = fork(start, policy, 30, settings=PLAIN, judge=judge)

    def drawn(point, given, draws, change, **shared):
        return told(arm, [1.0] * draws), told(arm, [1.0] * draws)

    monkeypatch.setattr(effect_module, "fork_both", drawn)
    ends = [stats.confidence_sequence(np.zeros(n), 0.3).high for n in (10, 20, 30)]
    exact = ends[1] if margin == 0.6875 else ends[1] - 1e-6 if margin else 0.0
    effect = compare_until(
        start, policy, Remove(1), error=0.3, batch=10, max_draws=30, margin=exact, judge=judge
    )
    assert (effect.looks, effect.decided) == (looks, margin > 0)


def test_an_effect_is_plain_data(start, policy, judge):
    import json

    effect = compare(*arms(start, policy, judge, 20))
    assert json.loads(json.dumps(effect.to_json()))["base"]["rate"] == effect.base.rate


def test_an_arm_alone_is_summarised(start, policy, judge):
    arm = fork(start, policy, 40, settings=PLAIN, judge=judge)
    summary = arm_summary(arm)
    assert summary["draws"] == summary["graded"] == 40
    assert sum(count for _, count in summary["most_common"]) == 40
    blind = arm_summary(fork(start, policy, 4, Ban(text=" think"), settings=PLAIN))
    assert blind["rate"] is None


def test_a_swept_trace_is_plain_data(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " guess wrong")
    report = trace_report(sweep(tree.at(leaf), policy, 64, judge=judge))
    tokens = [t for step in report["steps"] for t in step["tokens"]]
    assert [t["text"] for t in tokens] == [" guess", " wrong", ""]
    assert [t["index"] for t in tokens] == [0, 1, 2]
    assert report["cliff"]["token_index"] == 0
    assert report["cliff"]["text"] == " guess"
    assert tokens[0]["low"] < tokens[0]["value"] < tokens[0]["high"]
    assert report["outcome"] == 0.0


def test_removing_the_cliff_wins_what_it_cost(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " guess wrong")
    point = tree.at(leaf, 1)
    effect = compare(
        fork(point, policy, 400, judge=judge, seed=1),
        fork(point, policy, 400, Remove(1), judge=judge, seed=1),
    )
    assert effect.low < 0.35 < effect.high


@pytest.mark.parametrize(
    ("wrong", "right", "counted"),
    [(0.0, 1.0, True), (-1.0, 0.0, False), (-5.0, 5.0, False), (0.0, 2.0, False)],
)
def test_only_counts_of_0_and_1_have_a_binomial_interval(tree, start, policy, wrong, right, counted):
    """A whole sum of other scores is none: -1 and 0, or 0 and 2, have no interval that counts successes."""

    class Marks(MatchJudge):
        def judge(self, trajectory):
            return Verdict(right if super().judge(trajectory).value else wrong)

    judge = Marks("right")
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " guess wrong")
    result = sweep(tree.at(leaf), policy, 64, judge=judge)
    tokens = [t for step in trace_report(result)["steps"] for t in step["tokens"]]
    for token, total, n in zip(tokens, result.total, result.count, strict=True):
        wanted = stats.wilson(round(total), int(n)) if counted else None
        assert (token["low"], token["high"]) == ((wanted.low, wanted.high) if wanted else (None, None))


def test_no_cliff_is_claimed_where_the_intervals_overlap(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " think right")
    assert trace_report(sweep(tree.at(leaf), policy, 16, judge=judge))["cliff"] is None


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_every_figure_of_one_point_is_that_of_its_level(start, policy, judge, level):
    x, y = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    whole = arms(start, policy, judge, 6)
    base, other = (told(arm, list(scores)) for arm, scores in zip(whole, (x, y), strict=True))
    far = replace(other, record=replace(other.record, id="far", seed=9))
    object.__setattr__(far, "told", list(y))
    apart = stats.unpaired_difference(x, y, level=level)
    for changed, wanted in ((other, stats.paired_difference(x, y, level=level)), (far, apart)):
        effect = compare(base, changed, level=level)
        assert (effect.low, effect.high, effect.p) == (wanted.interval.low, wanted.interval.high, wanted.p)
        assert (effect.unpaired_low, effect.unpaired_high) == (apart.interval.low, apart.interval.high)
        for arm, scores in ((effect.base, x), (effect.other, y)):
            alone = stats.mean_interval(scores, level)
            assert (arm.rate, arm.low, arm.high) == (alone.estimate, alone.low, alone.high)
        assert effect.level == level


def test_what_was_compared_is_told_as_it_was(start, policy, judge, monkeypatch):
    """Texts of the change, the name of the score, ties, and each arm's own share of simulated answers."""
    monkeypatch.setattr(effect_module, "_simulated", lambda them: them[0].ties / 8)
    whole = arms(start, policy, judge, 3)
    base, other = (told(replace(arm, ties=n), [1.0, 0.0, 1.0]) for arm, n in zip(whole, (2, 5), strict=True))
    effect = compare(base, other)
    assert (effect.ties, effect.base_simulated, effect.other_simulated) == (7, 0.25, 0.625)
    for diff, texts in (
        (Diff("set", "warm", "cold"), ("set", "warm", "cold")),
        (None, ("nothing", "", "")),
    ):
        bare = [told(replace(arm, diff=None), [1.0, 0.0, 1.0]) for arm in whole]
        changed = told(replace(whole[1], diff=diff), [1.0, 0.0, 1.0])
        effect = compare(bare[0], changed)
        assert (effect.what, effect.before_text, effect.after_text) == texts
    # Where the control has the change and the other arm has none, that is what sets them apart.
    control = told(replace(whole[0], diff=Diff("set", "a", "b")), [1.0, 0.0])
    effect = compare(control, bare[1])
    assert (effect.what, effect.before_text, effect.after_text) == ("set", "a", "b")
    assert effect.score == "success"

    class Nameless:
        def __call__(self, trajectory):
            return 1.0

    def right(trajectory):
        return 1.0

    assert compare(base, other, score=Nameless()).score == "score"
    assert compare(base, other, score=right).score == "right"


@pytest.mark.parametrize("error", [0.05, 0.3])
def test_what_is_said_at_the_stopping_time_is_of_the_stated_error(start, policy, judge, monkeypatch, error):
    """Each arm by itself, the difference without pairing, and the score that was asked for."""
    x, y = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.5, 1.0, 0.0, 1.0]
    whole, asked = arms(start, policy, judge, 6), []

    class Asked(Told):
        __slots__ = ()

        def values(self, score="success"):
            asked.append(score)
            return list(self.told)

    def drawn(point, given, draws, change, **shared):
        pair = []
        for arm, scores in zip(whole, (x, y), strict=True):
            made = Asked(*(getattr(arm, field.name) for field in fields(Fork)))
            object.__setattr__(made, "told", scores)
            pair.append(made)
        return tuple(pair)

    monkeypatch.setattr(effect_module, "fork_both", drawn)
    monkeypatch.setattr(effect_module, "need_grader", lambda *_: None)
    effect = compare_until(
        start, policy, Remove(1), error=error, batch=6, max_draws=6, judge=judge, score="marks"
    )
    assert (effect.score, set(asked)) == ("marks", {"marks"})
    assert effect.level == 1 - error
    for arm, scores in ((effect.base, x), (effect.other, y)):
        alone = stats.mean_sequence(np.array(scores), error)
        assert (arm.rate, arm.low, arm.high) == (alone.estimate, alone.low, alone.high)
    bounds = effect_module._apart(np.array(x), np.array(y), error)
    assert (effect.unpaired_low, effect.unpaired_high) == bounds
