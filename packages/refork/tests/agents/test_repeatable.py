"""A Python program's clock and chance: kept, given back, fresh behind the point of a fork, never frozen."""

from __future__ import annotations

import json
import re
import sys
import time
import zlib
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from agents import provider as fake
from refork import agents
from refork.agents import diagnosis
from refork.agents.hook import RepeatableRun
from refork.cli.agent import app
from refork.errors import BadInput, CannotDo
from refork.tree import Tree

ASK = """
import json, os, urllib.request as web

def ask(*parts):
    asked = {"model": "m", "messages": [{"role": "user", "content": " ".join(map(str, parts))}]}
    request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(asked).encode())
    request.add_header("content-type", "application/json")
    return json.load(web.urlopen(request))["choices"][0]["message"]["content"]
"""
HELD = agents.RecordSettings(repeatable=True)


def recorded(tree, to, folder, code, settings=HELD):
    """A program, which asks with ``ask``, recorded."""
    (folder / "agent.py").write_text(ASK + code)
    run = agents.record(
        tree, [sys.executable, "agent.py"], to=to, folder=folder, quiet=True, settings=settings
    )
    assert run.exit == 0, run.output
    return agents.find_run(tree, run.id)


#: Each tells a model what is another thing each time.
PARTS = {
    "clock": "from datetime import date, datetime, timezone\nimport time\n"
    "ask(datetime.now(), datetime.utcnow(), datetime.now(timezone.utc), datetime.today(), date.today())\n"
    "ask(time.time(), time.time_ns(), time.ctime(), time.localtime(), time.strftime('%T'))",
    "ids": "import uuid, secrets\nask(uuid.uuid4(), uuid.uuid1(), secrets.token_hex(), os.urandom(8).hex())",
    "chance": "import random\nother = random.Random()\n"
    "ask(random.choice(range(99)), random.gauss(0, 1), other.random(), random.SystemRandom().random())\n"
    "state = random.getstate()\nask(random.random())\nrandom.setstate(state)\nask(random.random())",
    "sets": "ask({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})",
    "numpy": "import numpy as np\n"
    "ask(np.random.rand(2), np.random.default_rng().random(2), np.random.RandomState().rand())",
}


@pytest.mark.parametrize("part", PARTS)
def test_what_differs_each_time_is_the_same_in_a_replay(tmp_path, part):
    if part == "numpy":
        pytest.importorskip("numpy")
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (provider, to):
        run = recorded(tree, to, tmp_path, PARTS[part])
        assert run.repeatable["processes"] == 1
        told = agents.replay(tree, run, quiet=True)
        assert told.identical, told.sentence
        assert told.byte_equal == told.recorded
        # And without, so that this is what does it.
        plain = recorded(tree, to, tmp_path, PARTS[part], agents.RecordSettings())
        told = agents.replay(tree, plain, quiet=True)
        assert told.divergence is not None
        assert told.divergence.by_chance, told.divergence
        assert "recorded with --repeatable" in told.sentence
        asked = len(provider.asked)
        # Two runs are two: the seed is another one.
        again = recorded(tree, to, tmp_path, PARTS[part])
        assert again.repeatable["seed"] != run.repeatable["seed"]
        assert provider.asked[asked][2] != provider.asked[0][2]


#: Lines of work that end in any order: each has a clock and chance of its own.
MANY = """
import asyncio, contextvars, random, threading, time, uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

def waits():
    time.sleep(int.from_bytes(open("/dev/urandom", "rb").read(1), "big") / 10_000)

def work(name):
    waits()
    return name, ask(name, datetime.now(), uuid.uuid4(), random.random(), random.gauss(0, 1))

async def task(name):
    return await asyncio.to_thread(work, name)

async def tasks():
    return await asyncio.gather(*(task(f"task {n}") for n in range(6)))

print(asyncio.run(tasks()))
with ThreadPoolExecutor(3) as pool:
    print(list(pool.map(work, [f"pool {n}" for n in range(6)])))
    own = [pool.submit(contextvars.copy_context().run, work, f"context {n}") for n in range(6)]
    print([one.result() for one in own])
found = {}
threads = [threading.Thread(target=lambda n=n: found.update({n: work(f"thread {n}")})) for n in range(6)]
for one in threads: one.start()
for one in threads: one.join()
print(sorted(found.items()))
"""


def test_work_at_the_same_time_has_each_its_own(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = recorded(tree, to, tmp_path, MANY)
        for _ in range(2):
            told = agents.replay(tree, run, quiet=True)
            assert told.identical, told.sentence
            assert (told.byte_equal, told.output_equal) == (24, True)


CHILDREN = """
import multiprocessing, random, subprocess, sys, time, uuid

def child(pipe):
    pipe.send([time.time(), random.random(), str(uuid.uuid4())])

if __name__ == "__main__":
    code = "import time, uuid, random; print(time.time(), uuid.uuid4(), random.random(), {'a', 'b', 'c'})"
    said = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(2)]
    assert said[0].split()[1] != said[1].split()[1]
    for way in ("fork", "fork", "spawn"):
        ours, theirs = multiprocessing.Pipe()
        one = multiprocessing.get_context(way).Process(target=child, args=(theirs,))
        one.start()
        said.append(ours.recv())
        one.join()
    assert len({one[1] for one in said[2:]} | {random.random()}) == 4  # no child draws as another does
    print(ask(*said, random.random()))
"""


def test_children_have_each_their_own(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = recorded(tree, to, tmp_path, CHILDREN)
        assert run.repeatable["processes"] >= 5
        told = agents.replay(tree, run, quiet=True)
        assert told.identical, told.sentence


#: Tosses coins of every kind, made before the point and tossed before and behind it.
COINS = """
import random, time, uuid
import numpy as np

mine, numbers = random.Random(), np.random.default_rng()
coins = {
    "module": random.random, "own": mine.random, "entropy": random.SystemRandom().random, "id": uuid.uuid4,
    "numpy": np.random.rand, "generator": lambda: numbers.random(), "seeded": random.Random(7).random,
    "gauss": lambda: random.gauss(0, 1),
}
ask({name: str(coin()) for name, coin in coins.items()}, time.time())
print(json.dumps({name: str(coin()) for name, coin in coins.items()} | {"time": time.time()}))
"""


def test_behind_the_point_of_a_fork_coins_are_tossed_and_the_clock_goes_on(tmp_path):
    pytest.importorskip("numpy")
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = recorded(tree, to, tmp_path, COINS)
        first = json.loads(run.output)
        change = agents.ProgramChange("again")
        settings = agents.ProgramForkSettings(to)

        def drawn(draws):
            arms = agents.fork_run(tree, run, 0, change, draws, settings=settings)
            for arm in arms:
                for draw in arm.draws:
                    assert draw.error is None
            return [json.loads(tree.node(draw.leaf).text) for arm in arms for draw in arm.draws]

        drawn(1)
        before_the_last = time.time()
        found = drawn(3)
        for name in first:
            different = len({one[name] for one in found})
            # What the program seeded stays as it is; each draw of both arms has a coin of its own.
            assert different == (1 if name == "seeded" else len(found)), name
            assert (first[name] in {one[name] for one in found}) == (name == "seeded")
        (event,) = agents.exchanges(tree, run)
        began = tree.node(event["node"]).extra["exchange"]["began"]
        # It goes on from when the recorded run was there, whatever day it is now.
        assert all(began <= one["time"] < before_the_last for one in found)
        # What was drawn is the same when it is drawn again.
        held = [RepeatableRun.of(tree, run, "arm", number)._draw for number in (0, 1, 0)]
        assert held[0] == held[2] != held[1]


REAL = """
import asyncio, pickle, tempfile, time
from datetime import date, datetime
import datetime as whole

class Timer:
    clock = time.time  # no method, as of a builtin

assert isinstance(Timer().clock(), float) and pickle.loads(pickle.dumps(time.time)) is time.time
class Own(datetime): pass
assert type(Own.now()) is Own and type(datetime.now()) is whole.datetime and isinstance(datetime.now(), date)
import random
assert random.Random(42).random() == 0.6394267984578837
random.seed(42)
assert random.random() == 0.6394267984578837

async def late():
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)
    except asyncio.TimeoutError:
        return True
assert asyncio.run(late())
first = time.monotonic()
end = time.time() + 0.02
while time.time() < end:
    time.sleep(0.001)
assert time.monotonic() - first > 0.01
ask("done")
print(tempfile.mktemp())
"""


def test_looks_at_the_clock_that_cannot_be_kept_are_said_to_be_lost(tmp_path):
    code = (
        "import os, time\nreal = os.write\n"
        "def full(*_):\n    raise OSError(28, 'No space left on device')\n"
        "os.write = full\ntime.time()\ntime.time()\nos.write = real\nask(1)"
    )
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = recorded(tree, to, tmp_path, code)
    assert run.output.count("refork: looks at the clock are not all kept: [Errno 28]") == 1


def test_arms_of_two_points_are_not_held_against_each_other(tmp_path, monkeypatch):
    """With all answers kept a coin before the last is the recorded one; from the first on it falls anew."""
    code = "import random\nask(1)\nask(2)\nprint(random.choice(['tails', 'edge']))\nask(3)"

    class Looked(Exception):
        pass

    def looks(*_, together):
        raise Looked(together)

    monkeypatch.setattr(diagnosis, "FallSearch", looks)
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving(lambda asked: ("go on", None)) as (_, to):
        how, lost = agents.ProgramForkSettings(to=to), agents.Outcome(succeeds="heads")
        for settings, together in ((HELD, False), (agents.RecordSettings(), True)):
            run = recorded(tree, to, tmp_path, code, settings)
            with pytest.raises(Looked, match=str(together)):
                agents.why(tree, run, outcome=lost, settings=how)
        run = recorded(tree, to, tmp_path, code)
        with pytest.raises(CannotDo, match="recorded chance"):
            agents.fork_run(tree, run, 0, agents.ProgramChange("again"), 2, through=2, settings=how)


def test_nothing_that_has_to_be_real_is_frozen(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = recorded(tree, to, tmp_path, REAL)
        told = agents.replay(tree, run, quiet=True)
        assert told.identical, told.sentence
        # Names of temporary files do not collide with those of the run that was recorded.
        assert told.output_equal is False


def another_day(tree, run, days=12):
    """The run as if it had been recorded so many days before."""
    shift = days * 86_400 * 10**9
    kept = json.loads(zlib.decompress(tree.blob(run.repeatable["readings"])))
    late = re.compile(r"(?<=\t)\d{19}$", re.MULTILINE)
    told = {name: late.sub(lambda one: str(int(one[0]) - shift), text) for name, text in kept.items()}
    readings = tree.put_blob(zlib.compress(json.dumps(told).encode()))
    return replace(run, began=run.began - shift / 1e9, repeatable={**run.repeatable, "readings": readings})


DAYS = """
import calendar, datetime, pathlib, time
ask("hello")
def looked(name):  # as code of a module with this name
    return eval("time.time(), datetime.datetime.now().timestamp()", {**globals(), "__name__": name})
if pathlib.Path("replayed").exists():
    [looked("__main__") for _ in range(9)]  # more often than when it was recorded
pathlib.Path("file").touch()
names = "__main__", "jwt.api_jws", "google.auth._helpers", "google.genai"
seen = {name: looked(name) for name in names} | {"file": [pathlib.Path("file").stat().st_mtime]}
print(json.dumps(seen | {"gmtime": [calendar.timegm(time.gmtime())]}))
"""


def test_on_another_day_it_is_the_recorded_one_but_for_what_others_check(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = another_day(tree, recorded(tree, to, tmp_path, DAYS))
        (tmp_path / "replayed").touch()
        again = tmp_path / "said"
        told = agents.replay(
            tree, run, quiet=True, command=["sh", "-c", f"{sys.executable} agent.py > {again}; true"]
        )
        assert told.identical, told.sentence
    looks = json.loads(again.read_text())
    ago = {name: {round((time.time() - one) / 86_400) for one in found} for name, found in looks.items()}
    assert ago == {
        "__main__": {12}, "google.genai": {12}, "gmtime": {12},
        "jwt.api_jws": {0}, "google.auth._helpers": {0}, "file": {0},
    }  # fmt: skip


def test_time_zone_and_hashes_are_given_back_and_other_variables_are_named(tmp_path, monkeypatch):
    code = "import time\nask(time.tzname, os.environ.get('LC_TIME'), os.environ['COLOUR'])\nprint(hash('a'))"
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("API_TOKEN", "0123456789abcdef")
    monkeypatch.delenv("LC_TIME", raising=False)
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, to):
        run = recorded(tree, to, tmp_path, code)
        monkeypatch.setenv("TZ", "Europe/Berlin")
        monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
        told = agents.replay(tree, run, quiet=True)
        assert (told.identical, told.output_equal, told.drift) == (True, True, ())
        monkeypatch.setenv("COLOUR", "green")
        monkeypatch.setenv("SHAPE", "round")
        monkeypatch.setenv("API_TOKEN", "another one, of which nothing is kept")
        told = agents.replay(tree, run, quiet=True)
        assert told.drift == ("COLOUR", "SHAPE")
        assert "other variables than then: COLOUR, SHAPE" in told.sentence
    raw = (tmp_path / "tape.db").read_bytes()
    assert b"0123456789abcdef" not in raw
    assert set(map(len, run.marks.values())) == {4}
    assert "API_TOKEN" not in run.marks


def test_the_command_says_what_was_kept(tmp_path):
    (tmp_path / "agent.py").write_text(ASK + "import time\nask(time.time())")
    tape = str(tmp_path / "tape.db")
    with fake.serving() as (_, to):
        asked = ["record", "--out", tape, "--to", to, "--folder", str(tmp_path), "--repeatable", "--"]
        done = CliRunner().invoke(app, [*asked, sys.executable, "agent.py"])
        assert "repeatable: clock and chance of 1 Python processes" in done.stderr
        assert (
            "repeatable: clock and chance of 1 Python processes"
            in CliRunner().invoke(app, ["show", tape]).stderr
        )
        shown = json.loads(CliRunner().invoke(app, ["show", tape, "--json"]).stdout)
        assert shown["repeatable"]["looks"] >= 1
        done = CliRunner().invoke(app, [*asked, sys.executable, "-I", "agent.py"])
        assert "nothing was kept" in done.stderr
    with Tree.open(tape, "r") as tree:
        run = agents.runs_of(tree)[0]
        broken = replace(run, repeatable={**run.repeatable, "readings": run.repeatable["readings"][::-1]})
        with pytest.raises((BadInput, KeyError)):
            RepeatableRun.of(tree, broken)
