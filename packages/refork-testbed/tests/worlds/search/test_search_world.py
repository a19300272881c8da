"""The search world: turns, grading from texts, snapshots, splits."""

import json

import pytest

from refork.errors import BadInput
from refork.worlds.dice import digest, split_of
from refork.worlds.environment import Environment
from refork.worlds.open import open_world, task_from_json, task_to_json


@pytest.fixture(scope="module")
def world():
    return open_world("search?results=3&cost=0.125")


@pytest.fixture(scope="module")
def tasks(world):
    return world.tasks("train", 24, 0)


def acted(world, task, seed, episode=None):
    episode = episode or world.start(task, 0)
    actor, seen, last = world.agent(task, seed), [], None
    while (action := actor.act(seen)) is not None:
        last = episode.step(action)
        seen.append((action, last.text))
        if last.done:
            break
    return seen, last, actor.manner


def test_it_is_an_environment_and_says_its_name(world):
    assert isinstance(world, Environment)
    assert (world.name, world.domain, world.max_turns) == ("search?results=3&cost=0.125", "search", 8)
    assert open_world(world.name).version == world.version


def test_recorded_episodes_are_graded_from_their_texts_and_are_repeatable(world, tasks):
    manners, verdicts = set(), set()
    for seed, task in enumerate(tasks):
        seen, last, manner = acted(world, task, seed)
        assert last.done
        assert world.standing(task, seen) == (True, last.reward)
        assert all(world.standing(task, seen[:n]) == (False, None) for n in range(len(seen)))
        assert acted(world, task, seed)[0] == seen
        manners.add(manner)
        verdicts.add(last.text.split()[0])
        if manner == "solver" and len(seen) < world.max_turns:
            opens = sum(action.startswith("open:") for action, _ in seen)
            assert last.reward == pytest.approx(1 - 0.125 * opens)
    assert manners == {"solver", "explorer", "erring"}
    assert {"accepted", "rejected"} <= verdicts


def test_an_episode_goes_on_exactly_from_a_snapshot(world, tasks):
    for seed, task in enumerate(tasks[:6]):
        seen, _, _ = acted(world, task, seed)
        for cut in range(len(seen) + 1):
            episode = world.start(task, 0)
            for action, _ in seen[:cut]:
                episode.step(action)
            twin = world.restore(task, episode.snapshot())
            assert twin.snapshot() == episode.snapshot()
            assert [twin.step(a) for a, _ in seen[cut:]] == [episode.step(a) for a, _ in seen[cut:]]
    with pytest.raises(BadInput, match="of task"):
        world.restore(tasks[1], world.start(tasks[0], 0).snapshot())
    spoiled = json.dumps({"task": tasks[0].id, "query": 2, "opens": 0, "turn": 0, "seen": None})
    for bad in (b"", b"{}", spoiled.encode()):
        with pytest.raises(BadInput, match="not a snapshot"):
            world.restore(tasks[0], bad)


def test_what_counts_as_exact_stands_in_the_brief(world, tasks):
    exact = 0
    for seed, task in enumerate(tasks):
        brief = world.brief(task).text
        assert world.brief(task).initial_state
        assert all(item in brief for item in task.data["answer"])
        episode, (seen, _, _) = world.start(task, 0), acted(world, task, seed)
        for action, _ in seen:
            said = episode.step(action)
            if said.info["exact"] and action.startswith("open:"):
                assert said.text.removesuffix("\ntime is up") in brief
                exact += 1
    assert exact > 5


def test_states_that_show_the_same_have_one_key(world, tasks):
    one, other = world.start(tasks[0], 0), world.start(tasks[0], 0)
    first = one.step("search: nothing here")
    other.step("look around")
    assert other.step("search: nothing here").state_key == first.state_key
    assert one.step("open: 1").state_key != first.state_key


def test_turns_that_go_nowhere(tasks):
    world = open_world("search?turns=5")
    episode = world.start(tasks[0], 0)
    assert episode.step("look").info["invalid"]
    for number in ("1", "²", "9" * 5000):
        assert world.start(tasks[0], 0).step(f"open: {number}").text == "no such page"
    assert episode.step("open: 1").text == "no such page"
    assert episode.step("search: zzz").text == episode.step("search: velor ; page 999").text == "no results"
    assert episode.step("open: 1").text == "no such page\ntime is up"
    assert episode.step("answer: x").reward == 0.0
    assert world.standing(tasks[0], [("look", "")] * 5) == (True, 0.0)


def test_splits_share_no_world_and_lists_of_tasks_are_prefixes(world):
    for split in ("train", "held-out"):
        found = world.tasks(split, 20, 7)
        assert found[:5] == world.tasks(split, 5, 7)
        assert all(split_of(digest("fiction", task.data["world"])) == split for task in found)
        assert len({task.id for task in found}) == 20
    back = task_from_json(world, json.loads(json.dumps(task_to_json(found[0]))))
    assert back == found[0]
    with pytest.raises(BadInput, match="not what its world says"):
        task_from_json(world, task_to_json(found[0]) | {"data": found[0].data | {"answer": ["x"]}})


@pytest.mark.parametrize(
    "spec",
    [
        "search?snippets=none", "search?snippets=2", "search?results=0", "search?turns=0", "search?cost=2",
        "search?kinds=no", "search?each=0", "search?brief=no", "search?what=1", "search:/no/such/folder",
        "search?lists=false",
    ],
)  # fmt: skip
def test_specifications_that_cannot_be(spec):
    with pytest.raises(BadInput):
        open_world(spec)
