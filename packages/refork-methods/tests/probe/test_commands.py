from __future__ import annotations

import json

import pytest

from refork.errors import BadInput, CannotDo, Mismatch
from refork.growing import grow
from refork.policies import open as open_module
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.probe.commands.probe import app
from refork_methods.probe.page import curve_words, write_page
from refork_methods.probe.picture import areas_figure, curve_figure, sweep_figure
from refork_testbed.worlds.refusal.world import RefusalJudge, refusal_world
from support.command import runner
from support.models import tiny_policy

probe = runner(app)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Rollouts of the planted commitment, graded by its own judge."""
    file = tmp_path_factory.mktemp("planted") / "tree.db"
    world = refusal_world("P")
    with Tree.open(file) as tree:
        tasks = world.tasks("held-out", 120)
        sampling = Sampling(max_tokens=32)
        grow(tree, world.policy(), world, tasks, draws=8, settings=sampling, judge=RefusalJudge())
    return file


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [{"prompt": f"q{n}", "intent": "harmful" if n % 2 else "benign"} for n in range(60)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@pytest.fixture
def tiny(monkeypatch):
    # A random model is no shipped policy, so the name opens it here.
    policy = tiny_policy()
    monkeypatch.setattr(open_module, "open_policy", lambda spec: policy)


def fitted(prompts, folder, *more, status=0):
    return probe(
        "fit", "--tree", folder / "tree.db", "--policy", "tiny", "--prompts", prompts, "--draws", 4,
        "--out", folder / "run", "--refusal-regex", "[A-Fa-f]", "--set", "opening=''", "--set",
        "close='<end>'", "--set", "sampling.max_tokens=5", "--set", "permutations=20", *more, status=status,
    )  # fmt: skip


def test_fit_prints_a_table_writes_a_report_and_draws_its_page(tiny, prompts, tmp_path):
    told = fitted(prompts, tmp_path)
    assert "AUROC*" in told
    assert "last prompt" in told
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<figure") == page.count("<table>") == 2
    assert "of the thinking" in page
    data = json.loads(fitted(prompts, tmp_path, "--json"))
    assert data["page"].endswith("report.html")
    assert set(data["probes"]) == {"last_prompt", "first_thinking", "text_control"}
    with pytest.raises(Mismatch, match="recipe"):
        fitted(prompts, tmp_path, "--set", "layer=0")


def test_fit_needs_a_model_that_shows_its_states(planted, tmp_path):
    with pytest.raises(CannotDo, match="local model"):
        probe("fit", "--tree", planted, "--policy", "scripted:refuser-p", "--out", tmp_path / "run")


def test_ceiling_of_the_planted_world(planted):
    told = json.loads(probe("ceiling", "--tree", planted, "--json"))
    pooled = told["groups"]["pooled"]
    assert abs(pooled["ceiling"]["estimate"] - 0.968) < 4 * pooled["ceiling"]["se"]
    assert len(told["prompts"]) == 120
    table = probe("ceiling", "--tree", planted)
    assert "harmful" in table
    assert "AUROC*" in table


def test_ceiling_of_counts(tmp_path):
    file = tmp_path / "counts.jsonl"
    file.write_text('{"id": "a", "refusals": 1, "rollouts": 1}\n{"id": "b", "refusals": 0, "rollouts": 1}\n')
    assert "one rollout each" in probe("ceiling", "--counts", file)
    with pytest.raises(BadInput, match="tree or a file"):
        probe("ceiling")


def part(auroc, *, ceiling=0.9, leak=False):
    found = {"estimate": ceiling, "se": 0.01} if ceiling else None
    return {
        "auroc": auroc, "low": auroc - 0.05, "high": auroc + 0.05, "ceiling": found, "leak": leak,
        "no_ceiling": None if ceiling else "why", "balanced_accuracy": 0.8,
    }  # fmt: skip


def test_pictures_show_the_ceiling_the_null_and_the_leak():
    areas = areas_figure([("probe", "pooled", part(0.8)), ("", "in", part(0.95, leak=True))])
    assert areas.rows[0][:4] == ("probe, pooled", "0.8", "0.75 to 0.85", "0.9")
    assert "of 0.900" in areas.rows[0][4]
    assert "LEAK" in areas.rows[1][4]
    (unknown,) = areas_figure([("probe", "pooled", part(0.8, ceiling=None))]).rows
    assert unknown[3] == "–"
    assert "AUROC* unknown" in unknown[4]
    valley = {"start": 0, "bottom": 5, "end": 9, "depth": 0.2, "low": 0.1, "high": 0.3, "recovery": 0.5}
    curve = {
        "above": [0.3, 0.2, 0.1, 0.05, 0.02, 0.0, 0.02, 0.1, 0.15, 0.2], "low": [-0.01] * 10,
        "high": [0.02] * 10, "ever": 0.04, "valley": valley | {"real": True}, "permutations": 200,
        "traces": 9, "reading": "hopping",
    }  # fmt: skip
    assert sum(row[0].startswith("valley") for row in curve_figure(curve).rows) == 3
    assert "50% of the fall" in curve_words(curve)
    curve["valley"] = valley | {"real": False}
    assert not any(row[0].startswith("valley") for row in curve_figure(curve).rows)
    assert "No valley" in curve_words(curve)
    areas = [[part(0.6), part(0.9)], [part(0.5, ceiling=None)] * 2]
    sweep = {"layers": [0, 1], "thinking": True, "areas": areas}
    assert [row[:3] for row in sweep_figure(sweep).rows] == [
        ("layer 1", "1", "50"), ("layer 1", "first thought", "50"), ("layer 0", "1", "60"),
        ("layer 0", "first thought", "90"),
    ]  # fmt: skip


def test_a_leak_is_the_headline(tmp_path):
    rows = {"prompts": 1, "rollouts": 2, "refusals": 1, "ungraded": 0, "failed": 0}
    told = {
        "policy": "p", "layer": -1, "rows": rows, "curve": None, "sweep": None, "notes": ["no sweep"],
        "probes": {"last_prompt": {"pooled": part(0.97, leak=True), "within": {}, "left_out": {}}},
    }  # fmt: skip
    page = write_page(tmp_path, told).read_text()
    assert "leaks into the states" in page
    assert "no sweep." in page


def test_the_noun_is_mounted_with_all_its_verbs():
    told = probe("--help")
    assert "fit" in told
    assert "ceiling" in told
