"""The world: thirty templates that their experts solve, exact snapshots, splits, shifts, tools."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey, stream_of
from refork.worlds import open_world
from refork_testbed.worlds.miniapps.agents import Agent, expert, play
from refork_testbed.worlds.miniapps.mind import Rates, default_slips
from refork_testbed.worlds.miniapps.scenarios import SETS, read_query
from refork_testbed.worlds.miniapps.world import (
    MAX_TURNS,
    MiniAppsWorld,
    ToolLike,
    miniapps_world,
    scenarios_of,
)

KEY = NoiseKey(0, 0, 0)
#: An agent that slips at every third occasion: its actions wander through all frictions.
CLUMSY = Agent(Rates(slips=dict.fromkeys(default_slips(), 0.35), wanders=0.3))


@pytest.mark.parametrize("shift", ["", "pages", "cents", "ids", "pages+cents+ids"])
@pytest.mark.parametrize("split", ["train", "held-out"])
def test_every_template_is_solved_by_its_expert_in_every_version(shift, split):
    world = miniapps_world(shift, "all")
    tasks = world.tasks(split, 90)
    assert {task.data["template"] for task in tasks} == set(SETS["all"])
    for task in tasks:
        run = play(expert(task.prompt), world.start(task, 0), KEY)
        assert run.reward == 1.0, (task.data["template"], run.info)
        assert run.info["collateral"] == run.info["failed"] == []
        assert run.steps < MAX_TURNS


def test_there_are_thirty_templates_of_three_instances_and_ten_are_combinations():
    assert {name: len(keys) for name, keys in SETS.items()} == {"seen": 20, "new": 10, "all": 30}
    tasks = open_world("miniapps").tasks("train", 90)
    assert set(Counter(scenarios_of(tasks).values()).values()) == {3}
    assert len(set(scenarios_of(tasks).values())) == 30
    assert len({task.data["query"] for task in tasks}) == 90
    parts = {part.template for name in SETS["new"] for part in _parts(name)}
    assert parts <= set(SETS["seen"])
    assert all(len(_parts(name)) == 2 for name in SETS["new"])


def _parts(name):
    task = next(t for t in miniapps_world("", "new").tasks("train", 30) if t.data["template"] == name)
    return list(read_query(task.data["query"]))


def test_a_shifted_world_has_new_templates_unless_told_otherwise():
    assert {t.data["template"] for t in open_world("miniapps?shift=cents").tasks("train", 30)} == set(
        SETS["new"]
    )
    seen = open_world("miniapps?shift=pages&templates=seen").tasks("train", 60)
    assert {t.data["template"] for t in seen} == set(SETS["seen"])
    with pytest.raises(BadInput, match="no shift"):
        open_world("miniapps?shift=moon")
    with pytest.raises(BadInput, match="no set of templates"):
        open_world("miniapps?templates=some")
    with pytest.raises(BadInput, match="no argument"):
        open_world("miniapps:5")


def test_a_task_of_another_version_or_with_another_prompt_is_refused():
    world = open_world("miniapps")
    task = open_world("miniapps?shift=cents&templates=all").tasks("train", 1)[0]
    with pytest.raises(BadInput, match="another version"):
        world.start(task, 0)
    with pytest.raises(BadInput, match="no template"):
        list(read_query("Sing a song."))


@pytest.mark.parametrize("name", SETS["all"])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_a_snapshot_is_the_episode_at_every_turn(name, data):
    world = MiniAppsWorld(templates="all")
    task = _of(name)[data.draw(st.integers(0, 2))]
    session = CLUMSY.open(task.prompt)
    episode = world.start(task, 0)
    thoughts = NoiseKey(data.draw(st.integers(0, 99)), 0, 0)
    said, seen = [], []
    cut = data.draw(st.integers(0, 12))
    saved = restored = None
    while not seen or not seen[-1].done:
        if len(seen) == cut:
            saved = episode.snapshot()
            restored = world.restore(task, saved)
            assert restored.snapshot() == saved
        said.append(session.say(stream_of(thoughts.seed, len(said)) % 4096))
        seen.append(episode.step(said[-1]))
        session.see(seen[-1].text)
        if restored is not None:
            assert restored.step(said[-1]) == seen[-1]
            assert restored.snapshot() == episode.snapshot()
    assert episode.snapshot() == world.restore(task, episode.snapshot()).snapshot()
    again = world.start(task, 0)
    assert [again.step(action) for action in said] == seen
    assert again.step("apis.mail.list_inbox()").text == "The run is over."
    assert again.call("mail.list_inbox")["status_code"] == 409


def _of(name):
    return [t for t in open_world("miniapps").tasks("train", 90) if t.data["template"] == name]


def test_snapshots_that_are_none_are_refused():
    world = open_world("miniapps")
    one, other = world.tasks("train", 2)
    saved = json.loads(world.start(one, 0).snapshot())
    for spoiled in (
        saved | {"rows": {}},
        saved | {"rows": saved["rows"] | {"notes": [{"id": 1}]}},
        saved | {"rows": saved["rows"] | {"notes": [{"id": 1, "title": [], "text": ""}]}},
        saved | {"end": {"x": 1}},
        {"task": one.id},
        [],
    ):
        with pytest.raises(BadInput):
            world.restore(one, json.dumps(spoiled).encode())
    with pytest.raises(BadInput, match="is of task"):
        world.restore(other, world.start(one, 0).snapshot())


def test_the_state_key_is_the_state_the_logins_and_what_is_seen():
    world = open_world("miniapps")
    task = world.tasks("train", 1)[0]
    one, two = world.start(task, 0), world.start(task, 0)
    assert one.first.state_key == two.first.state_key
    assert one.step("hello").state_key == two.step("hello").state_key
    login = "apis.mail.login(username='robin@home.example', password='m-4471')"
    token = json.loads(one.step(login).text)["access_token"]
    two.step("hello")
    look = "apis.nothing.here()"
    assert one.step(look).text == two.step(look).text
    assert one.step(look).state_key != two.step(look).state_key
    # the same state and the same text are one key, however many turns it took
    first = one.step(f"apis.notes.list_notes(access_token={token!r})")
    assert first.state_key == one.step(f"apis.notes.list_notes(access_token={token!r})").state_key


def test_out_of_turns_is_a_failure_and_says_so():
    world = open_world("miniapps")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    seen = [episode.step("think") for _ in range(MAX_TURNS)]
    assert [one.done for one in seen] == [False] * (MAX_TURNS - 1) + [True]
    assert seen[-1].reward == 0.0
    assert seen[-1].info["ending"] == "turns"


def test_extra_damage_after_the_expert_fails_the_task():
    world = open_world("miniapps")
    for task in world.tasks("train", 90)[::7]:
        session, episode = expert(task.prompt), world.start(task, 0)
        while not (said := session.say(0)).endswith("done()") and "done(" not in said:
            session.see(episode.step(said).text)
        token = episode.call("notes.login", username="robin@home.example", password="n-3316")["access_token"]
        episode.call("notes.create", title="oops", text="", access_token=token)
        seen = episode.step(said)
        assert seen.reward == 0.0
        assert seen.info["failed"] == ["nothing else changed"]
        assert len(seen.info["collateral"]) == 1


class Counting:
    name, doc = "look", "Look at the inbox."
    parameters = {"type": "object", "properties": {}, "required": []}  # noqa: RUF012

    def __init__(self, calls: int = 1, error: Exception | None = None) -> None:
        self.calls, self.error = calls, error

    def bind(self, sentence):
        return None

    def run(self, arguments, call):
        if self.error:
            raise self.error
        answers = [
            call("mail.login", {"username": "robin@home.example", "password": "m-4471"})
            for _ in range(self.calls)
        ]
        return answers[-1]


def test_tools_run_in_one_turn_and_their_failures_are_answers():
    world = open_world("miniapps").with_tools([Counting()])
    assert isinstance(Counting(), ToolLike)
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    seen = episode.step("tools.look()")
    assert "access_token" in json.loads(seen.text)["result"]
    assert [call["function"] for call in seen.info["calls"]] == ["mail.login"]
    assert json.loads(episode.step("tools.other()").text)["status_code"] == 404
    broken = world.with_tools([Counting(error=KeyError("page"))]).start(task, 0).step("tools.look()")
    assert json.loads(broken.text)["status_code"] == 500
    assert "KeyError" in broken.text
    many = world.with_tools([Counting(calls=300)]).start(task, 0).step("tools.look()")
    assert json.loads(many.text)["result"]["status_code"] == 429
    assert len(many.info["calls"]) == 200


def test_tools_are_part_of_the_version_but_not_of_the_tasks():
    plain = open_world("miniapps")
    with_tool = plain.with_tools([Counting()])
    assert with_tool.version != plain.version
    assert with_tool.tasks("train", 3) == plain.tasks("train", 3)
    with pytest.raises(BadInput, match="same name"):
        plain.with_tools([Counting(), Counting()])
