from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.errors import UserError
from refork.tree import Tree
from refork_methods.route.commands import app
from refork_methods.route.decision import DecisionLog, decide
from refork_methods.route.head import HeadCard, SelectionHead, query_digest, save_head
from refork_methods.route.pool import WorkerPool
from refork_methods.route.table import OutcomeTable, read_table, write_table
from refork_testbed.worlds.specialists import SpecialistsWorld

POOL = "\n".join(
    f'[[worker]]\nname = "w{i}"\npolicy = "scripted:specialist@{i}"\n'
    + ("price = { million_in = 10, million_out = 40, call = 0 }\n" if i < 3 else "")
    for i in range(4)
)


def route(*arguments, status=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(done.exception, UserError):
        assert done.exception.exit_code == status, done.exception
        return str(done.exception)
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("route")
    (home / "pool.toml").write_text(POOL)
    return home


def collect(folder, *more):
    pool, distribution = folder / "pool.toml", ("--set", "max_tokens=4")
    return route(
        "collect", "--pool", pool, "--tasks", 4, "--draws", 2, "-o", folder / "labels", *distribution, *more
    )


def test_collect_records_labels_and_resumes(folder):
    told = json.loads(collect(folder, "--json"))
    assert (told["rows"], told["queries"], told["failures"]) == (4 * 3 * 4 * 2, 12, 0)
    assert told["calls_of_unknown_price"] == 12 * 2
    assert told["money"] > 0
    assert set(told["means"]) == {"w0", "w1", "w2", "w3"}
    table = read_table(folder / "labels" / "outcomes.csv")
    assert len(table) == told["rows"]
    with Tree.open(folder / "labels" / "tree.db", "r") as tree:
        nodes = len(tree)
    shown = collect(folder)
    assert "96 outcomes of 12 queries, 0 draws without one" in shown
    assert "24 calls of unknown price" in shown
    assert "equal means for all workers" in shown
    with Tree.open(folder / "labels" / "tree.db", "r") as tree:
        assert len(tree) == nodes
    part = json.loads(collect(folder, "--turn", 0, "--rest", "swapped", "--table", "first.jsonl", "--json"))
    assert part["queries"] == 4
    assert len(read_table(folder / "labels" / "first.jsonl")) == 32
    assert "recorded or swapped" in collect_refused(folder)


def collect_refused(folder):
    pool = folder / "pool.toml"
    return route("collect", "--pool", pool, "-o", folder / "x", "--rest", "someone", status=2)


def test_collect_alone(folder):
    out = folder / "alone"
    world = ("--world", "specialists?alone=true", "--set", "max_tokens=4")
    told = json.loads(
        route("collect", "--pool", folder / "pool.toml", *world, "--tasks", 3, "--alone", "-o", out, "--json")
    )
    assert (told["rows"], told["effects"]) == (3 * 4 * 8, [])
    ids = [task.id for task in SpecialistsWorld(alone=True).tasks("train", 3)]
    assert list(read_table(out / "outcomes.csv").queries) == ids


def test_explain_a_log_and_a_tree(folder, tmp_path):
    collect(folder)
    pool = WorkerPool.of("a", "b")
    log = DecisionLog(tmp_path / "log.jsonl")
    log.append(decide("q1", [0.9, 0.1], pool), money=None, seconds=0.25, error=None)
    log.append(decide("q2", [0.1, 0.9], pool), money=None, seconds=0.25, error="nobody answers")
    shown = route("explain", tmp_path / "log.jsonl")
    assert "a with probability 0.900, 0.800 ahead of b" in shown
    assert "took 0.25 s and cost unknown" in shown
    assert "the call failed: nobody answers" in shown
    assert route("explain", tmp_path / "log.jsonl", "--last", 1).count("with probability") == 1
    assert route("explain", tmp_path / "log.jsonl", "--query", "q1").startswith("q1: a with")
    assert "no decision about 'nobody'" in route(
        "explain", tmp_path / "log.jsonl", "--query", "nobody", status=2
    )
    assert json.loads(route("explain", folder / "labels" / "tree.db", "--json")) == []


def test_frontier_prints_everything_and_draws_it(folder, tmp_path):
    collect(folder)
    table = folder / "labels" / "outcomes.csv"
    queries = read_table(table).queries
    lines = ["query,w0,w1,w2,w3", *(f"{query},0.7,0.1,0.1,0.1" for query in queries)]
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    svg = tmp_path / "f.svg"
    asked = ("frontier", table, "--router", f"mine={tmp_path / 'p.csv'}", "--calls", 2, "--svg", svg)
    told = json.loads(route(*asked, "--json"))
    names = [option["name"] for option in told["options"]]
    assert names[:6] == ["w0", "w1", "w2", "w3", "mine", "random"]
    assert names[-1] == "oracle"
    assert {r["worker"] for r in told["routers"][0]["removals"]} == {"w0", "w1", "w2", "w3"}
    assert svg.read_text().startswith("<svg")
    shown = route(*asked)
    for words in (
        "mine: regret",
        "without w0 (100% of choices)",
        "costs are unknown or all equal",
        "--fit picks it elsewhere",
    ):
        assert words in shown
    assert "nothing was chosen on" in route(*asked, "--fit", table, status=2)
    assert "not NAME=FILE" in route("frontier", table, "--router", "p.csv", status=2)


def test_a_fitted_head_is_measured_on_other_queries_only(tmp_path):
    rng = np.random.default_rng(0)
    domain = rng.integers(0, 2, 80)
    rewards = (rng.random((80, 2, 4)) < np.where(np.eye(2)[domain], 0.9, 0.2)[:, :, None]).astype(float)
    whole = OutcomeTable.from_arrays(rewards, ["a", "b"], features=np.eye(2)[domain])
    train, test = whole.split(rng, 0.5)
    for name, part in (("train", train), ("test", test)):
        write_table(part, tmp_path / f"{name}.csv")
    head = SelectionHead(np.array([[3.0, 0.0], [0.0, 3.0]]), ("a", "b"))
    card = HeadCard(("a", "b"), queries=tuple(query_digest(query) for query in train.queries))
    save_head(tmp_path / "head", head, card)
    asked = ("--head", tmp_path / "head", "--fit", tmp_path / "train.csv")
    told = json.loads(route("frontier", tmp_path / "test.csv", *asked, "--json"))
    (router,) = told["routers"]
    assert router["name"] == "head"
    # The head is always right about the domain: 0.9, over 160 draws; 5 SE, once in a million seeds.
    assert abs(router["option"]["quality"]["estimate"] - 0.9) < 5 * np.sqrt(0.09 / 160)
    assert router["calibration"]["cases"] == 160
    assert router["calibration"]["brier"] < 0.15
    assert "fitted on" in route("frontier", tmp_path / "train.csv", *asked, status=2)
    write_table(OutcomeTable.from_arrays(rewards[:8], ["a", "b"], [*"stuvwxyz"]), tmp_path / "plain.csv")
    assert "reads features and the table has none" in route(
        "frontier", tmp_path / "plain.csv", "--head", tmp_path / "head", status=2
    )


def test_rewards_of_another_range_are_said_to_be_so(tmp_path):
    rewards = np.array([[[-1, 3], [2, 2]], [[3, 3], [-1, 2]]], dtype=float)
    write_table(OutcomeTable.from_arrays(rewards, ["a", "b"], low=-1, high=3), tmp_path / "t.csv")
    assert "outside 0 .. 1" in route("frontier", tmp_path / "t.csv", status=2)
    span = ("--low", -1, "--high", 3)
    assert "best-of-2 of" in route("frontier", tmp_path / "t.csv", "--calls", 2, *span)
