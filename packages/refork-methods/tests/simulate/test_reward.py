"""The reward's arithmetic is exact, and None is not 0."""

import pytest

from refork.errors import BadInput
from refork.worlds.environment import Brief, EnvTrajectory, Transition
from refork_methods.simulate.prompt import Target, answer, one_each, pick, targets
from refork_methods.simulate.reward import HybridReward, Rubric, default_rule, same_shape
from refork_methods.simulate.rubric import RuleRubric, rule_rubric, token_f1
from support.drawers import trajectory


def target(observation, exact=True):
    turns = (Transition("look", observation, exact),)
    return Target(EnvTrajectory(id="1", source="s", brief=Brief(initial_state="x"), turns=turns), 0)


class Fixed:
    """Gives the same grades to all."""

    name, identity = "fixed", {}

    def __init__(self, *grades):
        names = ("format", "factuality", "consistency", "realism", "quality")
        self.rubric = Rubric(**dict(zip(names, grades, strict=True))) if grades else None
        self.shown = []

    def rate(self, items):
        self.shown += [text for _, text in items]
        return [self.rubric] * len(items)


def test_rubric_maps_its_mean():
    assert [Fixed(*[n] * 5).rubric.score for n in (1, 2, 3, 4, 5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Fixed(1, 2, 3, 4, 5).rubric.score == (3 - 1) / 4
    for bad in (0, 6, 2.5, True):
        with pytest.raises(BadInput, match="whole number"):
            Fixed(bad, 1, 1, 1, 1)


def test_hybrid_reward_mixes_and_keeps_none():
    judge = Fixed(4, 4, 4, 4, 4)
    assert HybridReward(judge)("right", target("right")) == pytest.approx(0.9 * 0.75 + 0.1)
    assert HybridReward(judge)("wrong", target("right")) == pytest.approx(0.9 * 0.75)
    assert HybridReward(judge, w=0.5)("right\n", target("right")) == pytest.approx(0.5 * 0.75 + 0.5)
    assert HybridReward(judge)("any", target("words", exact=False)) == 0.75  # no rule: the rubric alone
    assert HybridReward(Fixed())("right", target("right")) is None  # ungraded is not 0
    judge.shown.clear()
    earned = HybridReward(judge).earned([(None, target("x")), ("x", target("x"))])
    assert (earned[0].reward, earned[0].extracted) == (0.0, False)
    assert judge.shown == ["x"]
    with pytest.raises(BadInput, match="share"):
        HybridReward(judge, w=1.5)


def test_rule_is_exact_match_or_the_shape_of_json():
    assert default_rule('{"a": 2}', target('{"a": 1}')) == 0.0
    loose = target('{"a": 1, "b": [{"c": "x"}]}', exact=False)
    assert default_rule('{"a": 9.5, "b": [{"c": "y"}, {"c": "z"}]}', loose) == 1.0
    assert default_rule('{"a": "9", "b": []}', loose) == 0.0
    assert default_rule("not json", loose) == 0.0
    assert not same_shape(True, 1)
    assert same_shape(None, None)
    assert not same_shape([], {})


@pytest.mark.parametrize(("exact", "slope"), [(False, False), (True, True)])
def test_rule_rubric_is_five_to_the_letter_only(exact, slope):
    item = target("files notes.txt plan.md", exact)
    assert rule_rubric("files notes.txt plan.md\n", item, slope=slope).score == 1.0
    near = rule_rubric("files notes.txt", item, slope=slope)
    far = rule_rubric("perfect answer 12345", item, slope=slope)
    assert 1 > near.score > far.score
    assert far.factuality == far.consistency == 1
    assert token_f1("a b b", "b b c") == pytest.approx(2 / 3)
    assert token_f1("", "") == 1.0
    assert "no model" in RuleRubric().name


def test_what_could_be_known_and_is_not_met_has_a_quarter_at_most():
    row = '{"id":3,"title":"apple","price":12,"stock":4,"shop":2,"old":false}'
    item = target(row)
    near = rule_rubric(row.replace("12", "14"), item)
    assert near.grades() == {"format": 2, "factuality": 2, "consistency": 1, "realism": 2, "quality": 2}
    assert rule_rubric(row.replace("12", "14"), item, slope=True).score > 0.7
    assert rule_rubric("no row 9", item).score == 0
    assert rule_rubric(row, item).score == 1
    # The two scales are two judges: what one graded is not the other's grade.
    assert RuleRubric().identity != RuleRubric(slope=True).identity


def test_one_target_of_each_trajectory():
    data = [trajectory(n, turns=6) for n in range(40)]
    drawn = pick(data, 0)
    assert drawn == pick(data[::-1], 0)[::-1]
    assert drawn != pick(data, 1)
    assert len({item.index for item in drawn}) > 3
    one_each(drawn)
    with pytest.raises(BadInput, match="two targets come from one trajectory"):
        one_each(targets(data[:1]))
    known = pick(
        [
            EnvTrajectory(
                id="m", source="s", brief=Brief(), turns=(Transition("a", "b"), Transition("c", "d", True))
            )
        ],
        3,
        "exact",
    )
    assert [item.index for item in known] == [1]
    context_only = EnvTrajectory(
        id="c", source="s", brief=Brief(), turns=(Transition("a", "b", target=False),)
    )
    assert pick([context_only], 0) == []
    assert targets([context_only]) == []
    assert len(targets(data, 2, 0)) == 80


def test_words_beside_the_tag_fail_the_rule_and_nothing_else():
    asked = target("a key")
    truth = asked.truth
    shown = [(truth, asked)] * 3
    said = [answer(truth), "superb" + answer(truth), answer(truth, "it was there") + "\n"]
    with_rule = HybridReward(RuleRubric()).earned(shown, said)
    assert [one.rule for one in with_rule] == [1.0, 0.0, 1.0]
    assert with_rule[1].rubric == with_rule[0].rubric
    without = HybridReward(RuleRubric(), rule=None, w=1.0).earned(shown, said)
    assert {one.reward for one in without} == {without[0].reward}
