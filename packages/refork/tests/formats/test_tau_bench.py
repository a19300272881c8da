"""Results of tau-bench: as its own runner stores them, and a real file where there is one."""

from __future__ import annotations

import json

import pytest

from refork.formats.base import Head
from refork.formats.tau_bench import TauBench
from refork.growing.report import groups_from_tree
from support.foreign_logs import FIXTURES, REAL, imported, whats

FILE = FIXTURES / "tau-bench.json"


def test_trials_are_draws_of_their_task():
    body = json.loads(FILE.read_text())
    tree, remarks = imported(TauBench(), FILE)
    tasks = list(tree.tasks())
    assert [task.extra["task"] for task in tasks] == ["0", "1"]
    assert {task.text for task in tasks} == {"Be brief."}
    assert [(g.id, g.rewards) for g in groups_from_tree(tree, "reward")] == [
        ("0", (1.0, 1.0)),
        ("1", (0.0, 0.0)),
    ]
    trajectory = tree.path(next(tree.leaves()))
    assert [s.node.kind for s in trajectory][:4] == ["task", "observation", "action", "observation"]
    assert [s.text for s in trajectory][1:3] == [m["content"] for m in body[0]["traj"][1:3]]
    assert trajectory.leaf.extra["line"]["info"] == body[0]["info"]
    assert (
        whats(remarks, "skipped") == ["this run broke off without a message: " + body[2]["info"]["error"]] * 2
    )


def test_only_its_own_files_are_taken():
    reader = TauBench()
    assert reader.sniff(Head.of(FILE))
    for other in ("art.jsonl", "verifiers-traces.jsonl", "mini-tools.traj.json"):
        assert not reader.sniff(Head.of(FIXTURES / other))
    assert not reader.sniff(Head(b'[{"task_id": 1, "reward": 0, "info": {}}]'))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"traj": None}, "broke off without a message: the file does not say why"),
        ({"traj": [7]}, "a message is not an object"),
        ({"info": 7, "traj": []}, "broke off"),
    ],
)
def test_a_run_that_is_none_is_skipped_and_the_others_are_read(tmp_path, change, why):
    body = json.loads(FILE.read_text())[:2]
    (tmp_path / "log.json").write_text(json.dumps([body[0] | change, body[1]]))
    tree, remarks = imported(TauBench(), tmp_path / "log.json")
    assert why in whats(remarks, "skipped")[0]
    assert len(list(tree.leaves())) == 1
    del body[0]["trial"]
    (tmp_path / "log.json").write_text(json.dumps(body))
    assert "no trial" in whats(imported(TauBench(), tmp_path / "log.json")[1], "skipped")[0]


def test_a_real_file():
    files = sorted(REAL.glob("tau-bench-*.json"))
    if not files:
        pytest.skip(f"no results of tau-bench in {REAL}; REFORK_REAL_LOGS names a folder that has them")
    tree, remarks = imported(TauBench(), files[0])
    body = json.loads(files[0].read_text())
    assert len(list(tree.leaves())) == len(body) - len(whats(remarks, "skipped"))
