from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from refork.errors import BadInput, CannotDo, InternalError, WrongWeights
from refork.forking import Force, SwapPolicy, compare, fork, sweep
from refork.forking.arm import prepare, run_jobs
from refork.forking.backend import open_backend
from refork.forking.backend import worker as worker_module
from refork.forking.backend.backend import absolute
from refork.forking.backend.pool import SerialPool
from refork.forking.backend.processes import ProcessPool
from refork.forking.backend.ray_pool import RayPool
from refork.growing.plant import plant_prompt
from refork.growing.rollouts import grow_trees
from refork.growing.selector import RandomNode
from refork.growing.speculate import Speculation
from refork.judge import MatchJudge
from refork.policies.scripted import ScriptedPolicy
from refork.runs.observe import observed
from refork.runs.record import records
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from support.chain import PLAIN, TABLE
from support.exported import exported, unordered
from support.mortal import broken, mortal, other_weights


class Kills:
    """Progress that kills workers of a backend: one each time when so many draws of a stage are done."""

    def __init__(self, backend, at):
        self.backend, self.at, self.killed = backend, list(at), []

    def __call__(self, stage, done, total, *, tokens=None, waiting=None):
        # One that was killed is there until its end was heard.
        pids = [pid for pid in self.backend.pool.alive().values() if pid not in self.killed]
        if self.at and stage == "rollouts" and done >= self.at[0] and pids:
            self.at.pop(0)
            os.kill(pids[0], signal.SIGKILL)
            self.killed.append(pids[0])


def test_a_worker_records_what_this_process_would(work, alone):
    assert unordered(work.export(None)) == unordered(alone)


def test_processes_give_the_bytes_of_one_worker(work, alone, processes):
    assert work.export(processes) == alone


def test_killed_processes_lose_nothing_and_double_nothing(work, alone, processes):
    before, kills = processes.retried, Kills(processes, [0, 8, 16, 24])
    assert work.export(processes, kills) == alone
    assert len(set(kills.killed)) == 4
    assert processes.retried > before


def test_a_run_on_record_shows_its_workers_and_the_lost_one(work, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    with open_backend("processes:2?unit=4") as backend, observed("grow") as run:
        kills = Kills(backend, [8])
        assert work.export(backend, kills) == alone
        run._write()
        (record,) = records()
        shown = record.to_json()["workers"]
        there = {one["pid"] for one in shown if one["state"] == "idle"}
        (lost,) = (one for one in shown if one["state"] == "lost")
        assert there <= set(backend.pool.alive().values())
        assert lost["pid"] == kills.killed[0]
        assert lost["why"] == "it was ended by SIGKILL"
        assert {one["host"] for one in shown if one["state"] != "starting"} == {socket.gethostname()}
        sums = record.workers_together
        assert (sums["workers"], sums["lost"], sums["idle"] + sums.get("starting", 0)) == (3, 1, 2)
        assert sums["finished"] == record.rollouts == 2 * work.draws + 16
    assert [one["state"] for one in backend.roster.to_json()].count("ended") == 2


def test_a_worker_at_work_says_how_far_it_is(work, alone, monkeypatch):
    monkeypatch.setattr(worker_module, "BEAT", 0.001)
    out, sent = io.StringIO(), []
    monkeypatch.setattr(
        SerialPool, "give", lambda pool, n, text: (sent.append(text), pool._given.append(text))
    )
    with open_backend("serial?unit=4") as backend:
        work.export(backend)
    worker_module.serve(1, io.StringIO("".join(text + "\n" for text in sent)), out)
    signs = [json.loads(line[5:]) for line in out.getvalue().splitlines() if line.startswith("sign ")]
    answers = [line for line in out.getvalue().splitlines() if not line.startswith("sign ")]
    assert len(answers) == 1 + len(sent)
    assert signs
    assert all(0 <= sign["unit"] <= len(sent) and 0 <= sign["done"] <= 4 for sign in signs)
    assert [sign["unit"] for sign in signs] == sorted(sign["unit"] for sign in signs)


def test_signs_of_life_never_count_for_another_unit(processes):
    processes.pool.start()
    while not processes.pool.idle():
        processes.pool.wait(1.0)
    number = processes.pool.idle()[0]
    member = processes.pool._members[number]
    member.sign, member.units = {"unit": 3, "done": 2}, 3
    assert processes.pool.signs()[number].done == 2
    member.units = 4
    assert processes.pool.signs()[number].done is None


def test_the_size_of_units_changes_nothing(work, alone):
    for size in (1, 7, 100):
        with open_backend(f"serial?unit={size}") as backend:
            assert work.export(backend) == alone


def test_ctrl_c_finishes_what_is_under_way_and_a_second_run_draws_the_rest(work, alone, processes):
    asked = []

    def stop(stage, done, total, *, tokens=None, waiting=None):
        if done >= 8 and not asked:
            asked.append(done)
            os.kill(os.getpid(), signal.SIGINT)

    with Tree.memory() as tree:
        with pytest.raises(KeyboardInterrupt):
            work.into(tree, processes, stop)
        # On a busy machine much may be under way when the key is heard, the end of the first arm too.
        drawn = [[d.draw for d in tree.draws(fork.id)] for fork in tree.forks()]
        assert all(one == list(range(len(one))) for one in drawn)
        count = sum(map(len, drawn))
        assert count == tree.stats().draws
        assert 8 <= count < 2 * work.draws
        told = []
        work.into(tree, processes, lambda stage, done, total, **_: told.append((stage, done, total)))
        assert told[0] == ("rollouts", 0, 2 * work.draws - count)
        assert exported(tree) == alone


def test_a_second_ctrl_c_ends_at_once_and_loses_nothing_that_was_written(work, alone):
    def stop(stage, done, total, *, tokens=None, waiting=None):
        if done >= 8:
            os.kill(os.getpid(), signal.SIGINT)

    with Tree.memory() as tree:
        with open_backend("processes:2?unit=4") as backend, pytest.raises(KeyboardInterrupt):
            work.into(tree, backend, stop)
        assert backend.pool.alive() == {}
        with open_backend("serial") as backend:
            work.into(tree, backend)
        assert exported(tree) == alone


@pytest.fixture
def start(tree):
    return plant_prompt(tree, ScriptedPolicy.from_chain(TABLE), "Well?")


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def test_a_draw_that_kills_its_workers_is_recorded_as_an_error_and_the_others_run_on(tree, start, processes):
    policy, before = mortal("6"), processes.retried
    processes.know(policy, "call:support.mortal:mortal@6")
    arm = fork(start, policy, 12, settings=PLAIN, backend=processes, judge=MatchJudge("right"))
    ends = {d.draw: d for d in arm.draws}
    assert [n for n, d in ends.items() if d.end == "error"] == [6]
    assert ends[6].error == "3 workers died of this draw: it was ended by SIGKILL"
    assert tree.node(ends[6].leaf).error == ends[6].error
    assert processes.retried == before + 5  # three times the unit of four, twice more the draw alone
    with Tree.memory() as other:
        here = plant_prompt(other, policy, "Well?")
        well = fork(
            here, ScriptedPolicy.from_chain(TABLE), 12, settings=PLAIN, judge=MatchJudge("right")
        ).values()
    assert arm.values() == [*well[:6], None, *well[7:]]
    again = fork(start, policy, 12, settings=PLAIN, backend=processes)
    assert again.tokens == 0


def test_a_bug_in_a_worker_comes_back_with_its_traceback_and_keeps_what_was_written(start, processes):
    policy = broken("6")
    processes.know(policy, "call:support.mortal:broken@6")
    with pytest.raises(InternalError, match="ZeroDivisionError: this draw breaks"):
        fork(start, policy, 12, settings=PLAIN, backend=processes)


def test_a_worker_that_finds_other_weights_under_the_name_refuses(start, processes):
    policy = ScriptedPolicy.from_chain(TABLE)
    processes.know(policy, "call:support.mortal:other_weights")
    assert other_weights().card.weights != policy.card.weights
    with pytest.raises(WrongWeights, match="same model on every node"):
        fork(start, policy, 4, settings=PLAIN, backend=processes)


def test_what_cannot_be_opened_by_name_is_refused_before_anything_is_drawn(tree, start, processes):
    stranger = ScriptedPolicy.from_chain(TABLE)
    with pytest.raises(CannotDo, match="made by this process"):
        fork(start, stranger, 4, settings=PLAIN, backend=processes)
    known = processes.open("scripted:coin")
    with pytest.raises(CannotDo, match="made by this process"):
        fork(start, known, 4, SwapPolicy(stranger), settings=PLAIN, backend=processes)
    assert tree.stats().draws == 0


def test_a_simulator_stays_in_its_process(tree, processes):
    class Echo:
        name, identity = "echo", {"model": "echo"}

        def resume(self, task, world, seen, seed):
            raise AssertionError("nobody asks")

    known = processes.open("scripted:coin")
    with pytest.raises(CannotDo, match="this process only"):
        fork(
            plant_prompt(tree, known, "Well?"), known, 4, settings=PLAIN, simulator=Echo(), backend=processes
        )


def test_a_name_that_a_worker_cannot_call_is_bad_input(start, processes):
    policy = mortal()
    processes.know(policy, "call:support.mortal:nobody")
    with pytest.raises(BadInput, match="nobody"):
        fork(start, policy, 4, settings=PLAIN, backend=processes)


def test_judges_effects_sweeps_and_trees_are_the_same_on_a_backend(processes):
    def everything(backend):
        with Tree.memory() as tree:
            policy = ScriptedPolicy.from_chain(TABLE)
            if backend is not None:
                backend.know(policy, "call:support.mortal:mortal")
            start = plant_prompt(tree, policy, "Well?")
            judge = MatchJudge("right")
            base = fork(start, policy, 16, settings=PLAIN, judge=judge, backend=backend)
            other = fork(
                start, policy, 16, Force(text=" think"), settings=PLAIN, judge=judge, backend=backend
            )
            effect = compare(base, other)
            result = sweep(
                tree.at(base.draws[0].leaf), policy, 16, judge=judge, settings=PLAIN, backend=backend
            )
            found = (
                effect.difference,
                effect.low,
                effect.p,
                effect.tokens,
                result.value.tolist(),
                result.tokens,
            )
            world, lock = open_world("lock"), ScriptedPolicy.from_replies(["open 1", "open 2", "try"])
            if backend is not None:
                lock = backend.open("scripted:lock")
            else:
                from refork.policies.open import open_policy

                lock = open_policy("scripted:lock")
            groups, log = grow_trees(
                tree, lock, world, world.tasks("held-out", 1, 0), selector=RandomNode(0, 2, 1, 4), leaves=6,
                settings=PLAIN.but(max_tokens=40), backend=backend,
            )  # fmt: skip
            return found, [entry.point for entry in log], groups[0].values(), unordered(exported(tree))

    assert everything(processes) == everything(None)


def test_arms_prepared_for_this_process_run_on_a_backend_too(tree, processes):
    policy, world = processes.open("scripted:lock"), open_world("lock")
    from refork.growing.plant import plant

    (point,) = plant(tree, policy, world, world.tasks("held-out", 1, 0))
    job = prepare(point, policy, 4, settings=PLAIN.but(max_tokens=40), world=world)
    assert all(branch.episode is not None for branch in job.branches)
    (arm,) = run_jobs([job], backend=processes)
    assert len(arm.draws) == 4
    assert arm.tokens == sum(trajectory.steps[1].node.length for trajectory in arm.leaves())


def test_speculation_is_refused_on_a_backend(tree, processes):
    policy, world = processes.open("scripted:lock"), open_world("lock")
    with pytest.raises(CannotDo, match="speculation"):
        grow_trees(
            tree, policy, world, world.tasks("held-out", 1, 0), selector=RandomNode(0, 2, 1, 4), leaves=4,
            settings=PLAIN, speculation=Speculation(1), backend=processes,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("serial", SerialPool(1, {})),
        ("serial?threads=3", SerialPool(3, {})),
        ("processes:4?threads=2", ProcessPool(4, 2)),
        ("ray", RayPool(None, None, 1)),
        ("ray:auto?workers=3", RayPool("auto", 3, 1)),
        ("ray://host:10001?gpus=0.5", RayPool("ray://host:10001", None, 1, 0.5)),
    ],
)
def test_a_specification_names_a_pool(spec, kind):
    made = open_backend(spec).pool
    assert type(made) is type(kind)
    for name in ("size", "threads", "address", "workers", "gpus"):
        assert getattr(made, name, None) == getattr(kind, name, None)


@pytest.mark.parametrize(
    "spec",
    ["", "spark", "processes:0", "processes:two", "processes?gpus=1", "serial:2", "ray?unit=0", "ray?gpus=-1",
     "ray?gpus=nan", "ray?what=1", "processes:2?threads="],
)  # fmt: skip
def test_a_specification_that_names_none_says_what_would(spec):
    with pytest.raises(BadInput, match="processes"):
        open_backend(spec)


def test_a_pool_of_a_users_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from refork.forking.backend.pool import SerialPool\n"
        "def pool(rest, options, opened):\n"
        "    return SerialPool(int(rest) + int(options.pop('more', 0)), opened)\n"
    )
    backend = open_backend(f"{tmp_path}/mine.py:pool:3?more=2&unit=7")
    assert (backend.pool.threads, backend.unit) == (5, 7)
    assert backend.pool.opened is backend.opened
    with pytest.raises(BadInput, match="it has no less"):
        open_backend(f"{tmp_path}/mine.py:pool:3?less=2")


def test_folders_in_names_are_made_absolute(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "ad").mkdir()
    monkeypatch.chdir(tmp_path)
    here = tmp_path.resolve()
    assert absolute("hf:model+adapter=ad+dtype=float32") == f"hf:{here}/model+adapter={here}/ad+dtype=float32"
    assert absolute("hf:org/name") == "hf:org/name"
    assert absolute("openai:http://h/v1#m+tokenizer=model") == f"openai:http://h/v1#m+tokenizer={here}/model"
    assert absolute("scripted:coin") == "scripted:coin"


def test_processes_end_with_the_process_that_began_them(tmp_path):
    script = (
        "import os, signal\n"
        "from refork.forking.backend import open_backend\n"
        "pool = open_backend('processes:1').pool\n"
        "pool.start()\n"
        "while not pool.alive(): pool.wait(1)\n"
        "print(*pool.alive().values(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    (pid,) = done.stdout.split()
    for _ in range(200):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # nobody waits for it, but it has ended
            return
        signal.sigtimedwait([], 0.05)
    raise AssertionError("the worker lives on")


@pytest.mark.slow
def test_a_local_model_says_the_same_tokens_and_log_probs_on_any_worker(tmp_path_factory):
    from refork_testbed.models import build

    model = f"hf:{build('test-tiny', tmp_path_factory.mktemp('organism') / 'tiny')}"

    def export(spec):
        with Tree.memory() as tree, open_backend(spec) as backend:
            policy = backend.open(model)
            fork(plant_prompt(tree, policy, "is it so"), policy, 12, settings=PLAIN, backend=backend)
            return exported(tree)

    assert export("processes:1?unit=4") == export("serial?unit=3")
