from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo, Mismatch, ReplayDiverged
from refork.forking import Force, fork
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds import Episode, World, open_world, resume
from refork.worlds.open import task_from_json, task_to_json

pytest.importorskip("textarena", reason="the extra textarena is not installed")

from refork_worlds.textarena import addressed, legal_moves

ALONE = {
    "FifteenPuzzle-v0": ["[up]", "[down]", "[left]", "[right]"],
    "2048-v0": ["[up]", "[down]", "[left]", "[right]"],
    "LightsOut-v0": ["[0 0]", "[1 2]", "[4 4]", "0 0"],
    "TowerOfHanoi-v0": ["[A B]", "[A C]", "[B C]", "[C A]"],
    "Mastermind-v0": ["[1 2 3 4]", "[4 4 4 4]", "[6 5 1 1]"],
    "Blackjack-v0": ["[Hit]", "[Stand]"],
}
TOGETHER = ["TicTacToe-v0", "ConnectFour-v0", "Nim-v0", "KuhnPoker-v0", "PigDice-v0", "Othello-v0"]


@cache
def opened(spec: str) -> World:
    return open_world(f"textarena:{spec}")


def moves_of(spec: str, data):
    name = spec.partition("?")[0]
    known = ALONE.get(name) or [
        "[0]",
        "[4]",
        "[8]",
        "[col 3]",
        "[0 1]",
        "[check]",
        "[bet]",
        "[roll]",
        "[2, 3]",
    ]
    return data.draw(st.sampled_from([*known, "nonsense", ""]))


@pytest.mark.parametrize("spec", [*ALONE, *TOGETHER, "ConnectFour-v0?seat=1", "Nim-v0?opponent=first"])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_a_checked_replay_and_the_episode_itself_go_on_alike(spec, data):
    world = opened(spec)
    task = world.tasks("train", 2)[data.draw(st.integers(0, 1))]
    seed = data.draw(st.integers(0, 2**63 - 1))
    episode = world.start(task, seed)
    assert isinstance(episode, Episode)
    actions: list[str] = []
    texts: list[str] = []
    for _ in range(data.draw(st.integers(0, 6))):
        actions.append(moves_of(spec, data))
        seen = episode.step(actions[-1])
        texts.append(seen.text)
        if seen.done:
            break
    assert episode.snapshot() is None
    before = random.getstate(), str(np.random.get_state())
    back, origin = resume(world, task, seed, actions, texts)
    assert (random.getstate(), str(np.random.get_state())) == before
    assert origin == ("replayed" if actions else "real")
    assert back.first == episode.first
    if data.draw(st.booleans()):
        for one in (episode, back):
            one.reseed(seed ^ 1)
    for _ in range(5):
        action = moves_of(spec, data)
        assert back.step(action) == episode.step(action)


def test_a_replay_that_differs_is_an_error():
    world = opened("PigDice-v0")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 3)
    said = [episode.step("[roll]").text, episode.step("[hold]").text]
    with pytest.raises(ReplayDiverged, match="turn"):
        resume(world, task, 4, ["[roll]", "[hold]"], said)
    with pytest.raises(CannotDo, match="replay"):
        world.restore(task, b"{}")


def test_another_process_opens_and_answers_alike():
    specs = ["FifteenPuzzle-v0", "2048-v0", "Mastermind-v0", "ConnectFour-v0", "KuhnPoker-v0"]
    program = """
import json, sys
from refork.worlds.open import open_world
told = []
for spec in sys.argv[1:]:
    world = open_world("textarena:" + spec)
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 5)
    told.append([task.id, episode.first.text, *(episode.step(a).text for a in ("[0]", "[up]", "[check]"))])
print(json.dumps(told))
"""
    told = subprocess.run(
        [sys.executable, "-c", program, *specs],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"},
    )  # fmt: skip
    here = []
    for spec in specs:
        task = opened(spec).tasks("train", 1)[0]
        episode = opened(spec).start(task, 5)
        said = [episode.step(action).text for action in ("[0]", "[up]", "[check]")]
        here.append([task.id, episode.first.text, *said])
    assert json.loads(told.stdout) == here


@pytest.mark.parametrize(
    "spec", ["FifteenPuzzle-v0", "Mastermind-v0", "TicTacToe-v0", "Nim-v0?seat=1&turns=5"]
)
def test_tasks_are_openings_seeded_prefix_stable_and_split(spec):
    world = opened(spec)
    assert isinstance(world, World)
    assert world.name == f"textarena:{spec}"
    train, held = world.tasks("train", 10), world.tasks("held-out", 5)
    assert world.tasks("train", 10) == train
    assert world.tasks("train", 3) == train[:3]
    assert [t.id for t in world.tasks("train", 10, seed=1)] != [t.id for t in train]
    assert len({t.id for t in (*train, *held)}) == 15
    if not world.fixed:
        assert len({t.data["opening"] for t in (*train, *held)}) == 15
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[0])))) == train[0]


def test_hidden_parts_tell_openings_apart():
    world = opened("Mastermind-v0")
    one, two = world.tasks("train", 2)
    assert world.start(one, 0).first.text == world.start(two, 0).first.text
    assert one.data["opening"] != two.data["opening"]


def test_a_tower_is_solved_and_graded():
    world = opened("TowerOfHanoi-v0")
    episode = world.start(world.tasks("train", 1)[0], 0)
    assert "Player 0" in episode.first.text or "Hanoi" in episode.first.text
    moves = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]
    seen = [episode.step(move) for move in moves]
    assert [s.reward for s in seen] == [None] * 6 + [1.0]
    assert seen[-1].done
    assert episode.step("[A B]") == seen[-1]


def test_a_second_wrong_move_in_a_row_ends_the_game():
    world = opened("TowerOfHanoi-v0")
    episode = world.start(world.tasks("train", 1)[0], 0)
    first = episode.step("dance")
    assert "invalid move" in first.text
    assert not first.done
    last = episode.step("dance again")
    assert (last.done, last.reward) == (True, 0.0)  # this game grades how far one came


def test_a_game_that_fails_at_a_move_answers_so(monkeypatch):
    world = opened("TowerOfHanoi-v0")
    episode = world.start(world.tasks("train", 1)[0], 0)

    def fail(action: str) -> None:
        raise IndexError(action)

    monkeypatch.setattr(episode.game, "step", fail)
    assert episode.step("x").text == "nothing happens ; the game could not read this: IndexError('x')"
    monkeypatch.undo()
    assert not episode.step("[A C]").done


def test_own_moves_are_not_told_back_and_the_opponents_are():
    world = opened("ConnectFour-v0?opponent=first")
    episode = world.start(world.tasks("train", 1)[0], 0)
    seen = episode.step("[col 3]")
    assert "[Player 1]" in seen.text
    tower = opened("TowerOfHanoi-v0")
    assert tower.start(tower.tasks("train", 1)[0], 0).step("[A C]").text.startswith("You moved disk 1")
    assert "[Player 0] [col 3]" not in seen.text
    second = opened("ConnectFour-v0?opponent=first&seat=1")
    begun = second.start(second.tasks("train", 1)[0], 0)
    assert "[Player 0]" in begun.first.text
    third = opened("ConnectFour-v0?seat=1")
    task = third.tasks("train", 1)[0]
    assert len({third.start(task, seed).first.text for seed in range(6)}) == 1


def test_the_first_legal_move_is_the_opponents():
    world = opened("TicTacToe-v0?opponent=first")
    episode = world.start(world.tasks("train", 1)[0], 0)
    for move in ("[4]", "[2]"):
        assert not episode.step(move).done
    last = episode.step("[6]")  # against 0 and 1
    assert (last.done, last.reward) == (True, 1.0)


@pytest.mark.parametrize("spec", TOGETHER)
def test_the_opponent_plays_whole_games_by_the_rules(spec):
    for seat in (0, 1):
        world = opened(f"{spec}?seat={seat}")
        task = world.tasks("train", 1)[0]
        ends = set()
        for seed in range(3):
            episode, luck = world.start(task, seed), random.Random(seed)
            seen, heard = episode.first, episode.first.text
            while not seen.done:
                moves = legal_moves(episode.game, world.game)
                if spec == "Othello-v0":
                    moves = [m for m in heard.split("Valid moves:")[-1].split("'") if m.startswith("[")]
                luck.shuffle(moves)
                seen = episode.step(moves[0])
                heard = seen.text or heard
            assert not episode.game.state.game_info[1 - seat]["invalid_move"]
            ends.add(seen.reward)
        assert ends <= {-1.0, 0.0, 1.0}


def test_chance_is_a_function_of_seed_and_turn():
    world = opened("PigDice-v0")
    task = world.tasks("train", 1)[0]

    def told(seed: int) -> tuple[str, ...]:
        episode = world.start(task, seed)
        return tuple(episode.step("[roll]").text for _ in range(4))

    assert told(1) == told(1)
    assert len({told(seed) for seed in range(6)}) > 3
    with addressed("x", 1):
        one = random.random(), np.random.random()
    with addressed("x", 1):
        assert (random.random(), np.random.random()) == one


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        ("Nothing-v0", BadInput, "no game"),
        ("", BadInput, "no game"),
        ("Wordle-v0-train", BadInput, "no game"),
        ("TowerOfHanoi-v0?colour=3", BadInput, "settings"),
        ("TowerOfHanoi-v0?turns=0", BadInput, "turns"),
        ("TowerOfHanoi-v0?turns=many", BadInput, "turns"),
        ("TowerOfHanoi-v0?seat=1", BadInput, "is for 1"),
        ("TowerOfHanoi-v0?opponent=first", BadInput, "is for 1"),
        ("TicTacToe-v0?seat=2", BadInput, "is for 2"),
        ("TicTacToe-v0?opponent=best", BadInput, "opponent"),
        ("TwentyQuestions-v0", CannotDo, "model on the network"),
        ("SecretMafia-v0", CannotDo, "one or two"),
        ("ColonelBlotto-v0", CannotDo, "no scripted opponent"),
    ],
)
def test_what_cannot_be_played_is_refused(spec, error, match):
    with pytest.raises(error, match=match):
        open_world(f"textarena:{spec}")


def test_word_lists_are_not_downloaded(monkeypatch, tmp_path):
    import nltk

    before = nltk.download
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(CannotDo, match="NLTK's 'words'"):
        open_world("textarena:Hangman-v0")
    assert nltk.download is before


def test_tasks_of_other_games_and_settings_are_refused():
    task = opened("TowerOfHanoi-v0").tasks("train", 1)[0]
    with pytest.raises(BadInput, match="Hanoi"):
        opened("Mastermind-v0").start(task, 0)
    with pytest.raises(Mismatch, match="another game"):
        open_world("textarena:TowerOfHanoi-v0?num_disks=4").start(task, 0)


def test_rollouts_are_grown_and_forked(tmp_path):
    world = opened("TowerOfHanoi-v0?turns=5")
    task = world.tasks("train", 1)[0]
    policy = ScriptedPolicy.from_replies(["[A C]", "[A B]", "[C B]", "[B C]"])
    sampling = Sampling(max_tokens=4)
    with Tree.open(tmp_path / "tower.db") as tree:
        (group,) = grow(tree, policy, world, [task], draws=4, settings=sampling)
        trajectories = [tree.path(draw.leaf) for draw in group.forks[0].draws]
        node = next(
            s.node for trajectory in trajectories for s in list(trajectory)[3:] if s.node.kind == "action"
        )
        arm = fork(
            tree.at(node.id, token=0),
            policy,
            draws=3,
            change=Force(text="[A B]"),
            settings=sampling,
            world=world,
        )
        assert len(arm.draws) == 3
        new = [s.node for d in arm.draws for s in tree.path(d.leaf) if s.node.fork == arm.record.id]
        assert {node.origin for node in new if node.kind == "observation"} == {"replayed"}
