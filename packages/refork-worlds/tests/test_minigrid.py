from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import OrderedDict
from functools import cache
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo, Mismatch
from refork.forking import Force, fork
from refork.growing import grow
from refork.growing.plant import opening
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds import Episode, World, open_world, resume
from refork.worlds.open import task_from_json, task_to_json

pytest.importorskip("minigrid", reason="the extra minigrid is not installed")

from refork_worlds import minigrid as adapter
from refork_worlds.minigrid import FACING, load_state, rectangles, save_state
from refork_worlds.minigrid_bot import Adviser, babyai_bot, bot_plan

ENVS = [
    "BabyAI-GoToLocal-v0",
    "BabyAI-PutNextS7N4Carrying-v0",
    "BabyAI-MiniBossLevel-v0",
    "BabyAI-KeyInBox-v0",
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-Fetch-8x8-N3-v0",
    "MiniGrid-LavaCrossingS9N2-v0",
    "MiniGrid-ObstructedMaze-1Dlhb-v0",
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-MemoryS7-v0",
]
ALL = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
ROOM = "minigrid:BabyAI-GoToLocal-v0"


@cache
def opened(env: str) -> World:
    return open_world(f"minigrid:{env}")


@cache
def tasks_of(env: str):
    return opened(env).tasks("train", 3)


def seen_again(text: str, side: int = 7) -> np.ndarray:
    """The environment's picture, computed back from the words."""
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

    image = np.zeros((side, side, 3), dtype=np.uint8)
    image[:, :, 0] = OBJECT_TO_IDX["empty"]
    usual = {"wall": "grey wall", "goal": "green goal", "lava": "red lava", "unseen": "red unseen"}

    def put(what: str, ahead: int, right: int) -> None:
        colour, kind, *state = usual.get(what, what).split()
        if kind == "unseen":
            image[side // 2 + right, side - 1 - ahead] = 0
            return
        number = ("open", "closed", "locked").index(state[0]) if state else 0
        image[side // 2 + right, side - 1 - ahead] = (OBJECT_TO_IDX[kind], COLOR_TO_IDX[colour], number)

    for part in text.removeprefix("nothing happens ; ").split(" ; ")[1:]:
        if part.startswith("hold "):
            if part != "hold nothing":
                put(part.removeprefix("hold "), 0, 0)
            continue
        found = re.fullmatch(
            r"(.+?)(?: ahead (\d+)(?: to (\d+))?)?(?: (left|right) (\d+)(?: to (right )?(\d+))?)?", part
        )
        assert found, part
        what, near, far, side_of, first, crosses, last = found.groups()
        rows = range(int(near or 0), int(far or near or 0) + 1)
        one, two = int(first or 0), int(last or first or 0)
        if side_of == "left":
            one, two = -one, two if crosses else -two
        for ahead in rows:
            for right in range(one, two + 1):
                put(what, ahead, right)
    return image


def walk(data, world, episode, most: int):
    for _ in range(data.draw(st.integers(0, most))):
        action = data.draw(st.sampled_from([*world.actions, "forward", "forward", "jump"]))
        seen = episode.step(action)
        yield action, seen
        if seen.done:
            return


@pytest.mark.parametrize("env", ENVS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_the_words_and_the_picture_say_the_same(env, data):
    world = opened(env)
    episode = world.start(data.draw(st.sampled_from(tasks_of(env))), 1)
    for seen in chain([episode.first], (seen for _, seen in walk(data, world, episode, 12))):
        picture = episode.env.gen_obs()
        assert f"facing {FACING[picture['direction']]} ; hold " in seen.text
        assert np.array_equal(seen_again(seen.text), picture["image"])


@given(cells=st.sets(st.tuples(st.integers(0, 5), st.integers(-3, 3))))
def test_rectangles_cover_every_cell_once(cells):
    covered = [
        (a, r)
        for start, end in rectangles(set(cells))
        for a in range(start[0], end[0] + 1)
        for r in range(start[1], end[1] + 1)
    ]
    assert sorted(covered) == sorted(cells)


@pytest.mark.parametrize("env", ENVS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_snapshot_replay_and_the_episode_itself_go_on_alike(env, data):
    world = opened(env)
    task = data.draw(st.sampled_from(tasks_of(env)))
    seed = data.draw(st.integers(0, 2**63 - 1))
    episode = world.start(task, seed)
    turns = [(action, seen.text) for action, seen in walk(data, world, episode, 12)]
    saved = episode.snapshot()
    restored = world.restore(task, saved)
    replayed, _ = resume(world, task, seed, [a for a, _ in turns], [text for _, text in turns])
    assert isinstance(restored, Episode)
    assert restored.first == episode.first
    assert restored.snapshot() == replayed.snapshot() == saved
    if data.draw(st.booleans()):
        for one in (episode, restored, replayed):
            one.reseed(seed ^ 1)
    for action, seen in walk(data, world, episode, 12):
        assert restored.step(action) == replayed.step(action) == seen
    assert restored.snapshot() == episode.snapshot()


def test_a_restored_state_shares_what_the_original_shares():
    world, task = opened("BabyAI-MiniBossLevel-v0"), tasks_of("BabyAI-MiniBossLevel-v0")[0]
    episode = world.start(task, 0)
    copy = adapter.make_env(world.env, world.settings)
    load_state(copy, json.loads(json.dumps(save_state(episode.env))))
    tracked = [x for x in vars(copy.instrs).values() if hasattr(x, "obj_set")]
    for one in [copy.instrs, *vars(copy.instrs).values()]:
        tracked += [x for x in vars(one).values() if hasattr(x, "obj_set")] if hasattr(one, "env") else []
    standing = {id(x) for x in copy.grid.grid}
    assert tracked
    assert all(id(x) in standing for desc in tracked for x in desc.obj_set)
    assert copy.instrs.env is copy


def test_another_process_goes_on_identically(tmp_path):
    world = opened("MiniGrid-Dynamic-Obstacles-6x6-v0")
    task = tasks_of(world.env)[0]
    episode = world.start(task, 11)
    for action in ("left", "right", "jump"):
        episode.step(action)
    (tmp_path / "saved").write_bytes(episode.snapshot())
    (tmp_path / "task").write_text(json.dumps(task_to_json(task)))
    program = """
import json, pathlib, sys
from refork.worlds.open import open_world, task_from_json
folder = pathlib.Path(sys.argv[1])
data = json.loads((folder / "task").read_text())
world = open_world(data["world"])
episode = world.restore(task_from_json(world, data), (folder / "saved").read_bytes())
print(json.dumps([episode.step(a).text for a in sys.argv[2:]]))
"""
    actions = ["left", "left", "right", "left", "right", "right"]
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), *actions], capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout) == [episode.step(action).text for action in actions]


def test_chance_is_a_function_of_seed_and_turn():
    world = opened("MiniGrid-Dynamic-Obstacles-6x6-v0")
    task = tasks_of(world.env)[0]
    assert not world.deterministic

    def told(seed: int) -> tuple[str, ...]:
        episode = world.start(task, seed)
        return tuple(episode.step(action).text for action in ("left", "right") * 3)

    assert told(3) == told(3)
    assert len({told(seed) for seed in range(8)}) > 4
    assert opened("MiniGrid-DoorKey-8x8-v0").deterministic


@pytest.mark.parametrize("spec", [ROOM, "minigrid:MiniGrid-DoorKey-6x6-v0?turns=9&reward=own"])
def test_tasks_are_layouts_seeded_prefix_stable_and_split(spec):
    world = open_world(spec)
    assert isinstance(world, World)
    assert world.name == spec
    train, held = world.tasks("train", 12), world.tasks("held-out", 6)
    assert world.tasks("train", 12) == train
    assert world.tasks("train", 4) == train[:4]
    assert world.tasks("train", 12, seed=1) != train
    layouts = [task.data["layout"] for task in (*train, *held)]
    assert len(set(layouts)) == len(layouts)
    assert {task.split for task in train} == {"train"}
    assert {task.split for task in held} == {"held-out"}
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[0])))) == train[0]


def test_an_environment_with_one_layout_has_one_task():
    world = open_world("minigrid:MiniGrid-Empty-5x5-v0")
    assert len(world.tasks("train", 1)) == 1
    for split, count in (("train", 2), ("held-out", 1)):
        with pytest.raises(BadInput, match=r"different .* layouts"):
            world.tasks(split, count)


def test_an_empty_room_told_to_the_letter():
    world = open_world("minigrid:MiniGrid-Empty-5x5-v0")
    task = world.tasks("train", 1)[0]
    assert task.prompt == f"get to the green goal square ; actions {' '.join(ALL)}"
    episode = world.start(task, 0)
    assert episode.first.text == (
        "facing east ; hold nothing ; goal ahead 2 right 2 ; wall ahead 0 to 6 left 3 to 1 "
        "; wall ahead 0 to 6 right 3 ; wall ahead 3 to 6 right 0 to 2"
    )
    assert episode.step("left").text.startswith("facing north ; ")
    blocked = episode.step("forward")
    assert blocked.text.startswith("nothing happens ; facing north ; ")
    assert blocked.info == {}
    assert episode.step("fly").info == {"invalid": True}
    for action in ("right", " Forward\n", "forward", "right", "forward"):
        assert not episode.step(action).done
    last = episode.step("forward")
    assert (last.done, last.reward) == (True, 1.0)
    # The environment's own reward: 1 - 0.9 of the share of its 100 turns; nonsense counts as one.
    assert last.info == {"own_reward": pytest.approx(1 - 0.9 * 9 / 100)}
    assert (episode.step("left").text, episode.step("left").reward) == (last.text, 1.0)


def test_state_keys_merge_states_whatever_the_way():
    world, task = opened("BabyAI-MiniBossLevel-v0"), tasks_of("BabyAI-MiniBossLevel-v0")[1]
    one, two = world.start(task, 0), world.start(task, 5)
    assert one.first.state_key == task.data["layout"]
    assert one.step("left").state_key != one.first.state_key
    assert one.step("right").state_key == one.first.state_key
    assert [two.step("right").state_key for _ in range(4)][-1] == one.first.state_key


def test_the_turn_limit_is_the_smaller_one_and_counts_nonsense():
    world = open_world("minigrid:BabyAI-GoToLocal-v0?turns=3")
    assert world.max_turns == 3
    episode = world.start(world.tasks("train", 1)[0], 0)
    seen = [episode.step(action) for action in ("sing", "dance", "left")]
    assert [s.done for s in seen] == [False, False, True]
    assert (seen[-1].reward, seen[-1].info["own_reward"]) == (0.0, 0.0)
    own = opened("BabyAI-GoToLocal-v0").start(tasks_of("BabyAI-GoToLocal-v0")[0], 0)
    for _ in range(int(own.env.max_steps) - 1):
        assert not own.step("done").done
    assert own.step("done").done


def test_a_collision_is_no_success_but_minus_one_as_the_environment_says():
    for option, reward in (("", 0.0), ("?reward=own", -1.0)):
        world = open_world(f"minigrid:MiniGrid-Dynamic-Obstacles-5x5-v0{option}")
        task = world.tasks("train", 1)[0]
        episode = world.start(task, 0)
        episode.step("left")  # into the wall
        assert episode.step("forward").reward == reward
    assert world.actions == ALL[:3]
    assert episode.task.prompt.endswith("actions left right forward")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("minigrid:Nothing-v0", "no environment"),
        ("minigrid:MiniGrid-Nothing-v0", "cannot make"),
        ("minigrid:FrozenLake-v1", "no MiniGrid environment"),
        (ROOM + "?turns=0", "turns"),
        (ROOM + "?turns=true", "turns"),
        (ROOM + "?reward=much", "reward"),
        (ROOM + "?render_mode=human", "render_mode"),
        (ROOM + "?max_steps=3", "use turns"),
        (ROOM + "?colour=blue", "cannot make"),
        ("minigrid:", "no environment"),
    ],
)
def test_bad_specifications_are_refused(spec, match):
    with pytest.raises(BadInput, match=match):
        open_world(spec)


def test_an_environment_that_needs_more_says_what():
    with pytest.raises(CannotDo, match="imageio"):
        open_world("minigrid:MiniGrid-WFC-MazeSimple-v0")


def test_snapshots_and_tasks_of_other_things_are_refused():
    world, (task, other, _) = opened("BabyAI-GoToLocal-v0"), tasks_of("BabyAI-GoToLocal-v0")
    good = world.start(task, 0).snapshot()
    evil = good.replace(b"minigrid.core.grid:Grid", b"subprocess:Popen")
    foreign = good.replace(b"minigrid.core.grid:Grid", b"minigrid.minigrid_env:pygame")
    assert evil != good != foreign
    for bad in (b"", b"\xff", b"[]", b"{}", world.start(other, 0).snapshot(), evil, foreign, good[:-9]):
        with pytest.raises(BadInput, match="snapshot"):
            world.restore(task, bad)
    with pytest.raises(BadInput, match="GoToLocal"):
        opened("MiniGrid-DoorKey-8x8-v0").start(task, 0)
    with pytest.raises(Mismatch, match="another layout"):
        open_world(ROOM + "?num_dists=2").start(task, 0)


def test_what_cannot_be_saved_is_forked_by_replay():
    world, task = opened("BabyAI-GoToLocal-v0"), tasks_of("BabyAI-GoToLocal-v0")[0]
    episode = world.start(task, 0)
    episode.env.friend = lambda: None
    assert episode.snapshot() is None
    assert episode.step("left").state_key is not None


# The bot


@pytest.mark.parametrize("env", ["BabyAI-GoToLocal-v0", "BabyAI-MiniBossLevel-v0", "BabyAI-UnlockLocal-v0"])
def test_the_bot_accomplishes_its_missions(env):
    world = opened(env)
    for task in tasks_of(env):
        episode = world.start(task, 0)
        seen = [episode.step(action) for action in bot_plan(world, task)]
        assert (seen[-1].done, seen[-1].reward) == (True, 1.0)
        assert not any(s.done for s in seen[:-1])


def test_the_bot_advises_after_other_turns_than_its_own():
    world, task = opened("BabyAI-GoToLocal-v0"), tasks_of("BabyAI-GoToLocal-v0")[0]
    begun = ("left", "jump", "left", "forward", "left")
    episode = world.start(task, 0)
    for action in begun:
        assert not episode.step(action).done
    assert [episode.step(action) for action in bot_plan(world, task, begun)][-1].reward == 1.0


def test_the_bot_gives_up_where_it_has_no_plan_and_plays_nothing_else():
    world = opened("BabyAI-KeyInBox-v0")
    with pytest.raises(CannotDo, match="gave up"):
        bot_plan(world, tasks_of(world.env)[0])
    other = opened("MiniGrid-DoorKey-8x8-v0")
    with pytest.raises(CannotDo, match="BabyAI"):
        Adviser().advice(other, tasks_of(other.env)[0], ())
    with pytest.raises(BadInput, match="share of errors"):
        babyai_bot(1.5)


def test_a_recorded_rollout_of_the_bot_is_forked_without_a_model(tmp_path):
    world, task = opened("BabyAI-GoToLocal-v0"), tasks_of("BabyAI-GoToLocal-v0")[0]
    sampling = Sampling(max_tokens=2)
    with Tree.open(tmp_path / "room.db") as tree:
        (group,) = grow(tree, babyai_bot(), world, [task], draws=1, settings=sampling)
        (draw,) = group.forks[0].draws
        assert group.values() == [1.0]
        walk = tree.path(draw.leaf)
        said = [step.node.text for step in walk if step.node.kind == "action"]
        assert said == list(bot_plan(world, task))
        # Go back to before its first word and make it say another: the bot plans anew and still arrives.
        first = next(step.node for step in walk if step.node.kind == "action")
        forced = Force(text="drop")
        other = fork(
            tree.at(first.id, token=0), babyai_bot(), draws=2, change=forced, settings=sampling, world=world
        )
        assert other.values("success") == [1.0, 1.0]
        for one in other.draws:
            texts = [s.node.text for s in tree.path(one.leaf) if s.node.fork == other.record.id]
            assert texts[0] == "drop"
            assert texts[1].startswith("nothing happens ; ")
        clumsy = grow(tree, babyai_bot(0.4), world, [task], draws=4, settings=sampling)[0]
        assert {v for v in clumsy.values() if v is not None} <= {0.0, 1.0}
        assert len({s.node.text for d in clumsy.forks[0].draws for s in tree.path(d.leaf)}) > 3


def test_the_bot_knows_a_task_that_was_only_restored(monkeypatch):
    world, task = opened("BabyAI-GoToLocal-v0"), tasks_of("BabyAI-GoToLocal-v0")[0]
    episode = world.start(task, 0)
    saved, asked = episode.snapshot(), f"{task.prompt}\n{episode.first.text}"
    monkeypatch.setattr(adapter, "_STARTED", OrderedDict())
    assert adapter.started(asked) == []
    world.restore(task, saved)
    assert adapter.started(asked) == [(world, task)]


def test_the_bots_law_is_its_advice_but_for_the_stated_errors():
    world, task = opened("BabyAI-GoToLocal-v0"), tasks_of("BabyAI-GoToLocal-v0")[1]
    policy = babyai_bot(0.3)
    episode = world.start(task, 0)
    asked = policy.render([], token_array([]), [opening(task.prompt, episode.first.text)])
    sampling = np.exp(policy.next_logprobs([asked.tokens])[0])
    advised, _ = Adviser().advice(world, task, ())
    found = {word: float(sampling[policy.encode(word)[0]]) for word in ALL}
    assert found == pytest.approx({word: 0.7 if word == advised else 0.05 for word in ALL})
    with pytest.raises(BadInput, match="has started"):
        policy.next_logprobs([policy.render([], token_array([]), [opening("hello", "")]).tokens])
