"""The reader against what the search itself writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel.report.searches import FLAGS, NAIVE, facts, failed, finding, line, matmul, right, store
from refork.errors import BadInput
from refork.plain import from_json
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.report import read_search
from refork_methods.kernel.roofline import Ceilings, Work
from refork_methods.kernel.search.folder import SearchFolder, SearchNode
from refork_methods.kernel.search.model import Observation, Proposal
from refork_methods.kernel.tool import Finding


def test_reads_what_the_search_writes(tmp_path: Path) -> None:
    strided = from_json(Finding, finding("StridedAccess"))
    made = Proposal(
        NAIVE + "//", FLAGS, "tile(k,64)", "why", "tile", ("StridedAccess",), granted=("no overlap",)
    )
    with SearchFolder(tmp_path / "s", facts()) as folder:
        root = SearchNode(
            number=0, parent=-1, candidate=Candidate(NAIVE, FLAGS), evaluated=Evaluated.from_json(right(1.0))
        )
        folder.add_node(root)
        folder.add_observation(0, Observation(findings=(strided,)))
        folder.add_node(
            SearchNode(
                number=1, parent=0, candidate=made.candidate, proposal=made, notes=("a note",),
                evaluated=Evaluated.from_json(failed("check", "wrong")),
            )
        )  # fmt: skip
        folder.note(state="done", best=0, final=right(1.0))
    search = read_search(tmp_path / "s")
    first, second = search.nodes
    assert (first.parent, first.move, first.findings, first.source) == (None, "", (strided,), NAIVE)
    assert (second.parent, second.move, second.answers) == (0, "tile(k,64)", ("StridedAccess",))
    assert (second.findings, second.notes, second.digest) == (None, ("a note",), made.candidate.digest)
    assert (first.granted, second.granted) == ((), ("no overlap",))
    assert not second.evaluated.ok
    assert second.evaluated.why == "wrong"
    assert search.winner == 0
    assert search.final is not None
    assert search.ceilings == Ceilings(48e9, 11e9, 1.06)
    assert search.work == Work(2.0 * 512**3, 12.0 * 512**2)
    assert search.path(1) == (0, 1)


def test_a_cut_last_line_is_passed_over(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", matmul(5)[0])
    with (folder / "nodes.jsonl").open("a") as stream:
        stream.write('{"number": 5, "par')
    assert len(read_search(folder).nodes) == 5


def test_the_duel_counts_only_when_the_search_has_ended(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", matmul(5)[0], state="stopped", best=0, final=right(1.0))
    search = read_search(folder)
    assert search.final is None
    assert search.winner is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ceilings": {"flops": -1.0, "bandwidth": 1.0}}, "ceilings"),
        ({"ceilings": {"flops": "many", "bandwidth": 1.0}}, "flops"),
        ({"state": "done", "best": 9, "final": right(1.0)}, "best is node 9"),
        ({"state": "done", "best": 0, "final": right(1.0) | {"speedup": 0.0}}, "speedup is 0"),
    ],
)
def test_what_is_not_sound_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_search(store(tmp_path / "s", matmul(3)[0], **changed))


@pytest.mark.parametrize("value", [0.0, -1.0, "fast"])
def test_a_time_is_a_number_above_0(tmp_path: Path, value: object) -> None:
    lines = [line(0, -1, NAIVE, right(1.0) | {"seconds": value})]
    with pytest.raises(BadInput, match="seconds"):
        read_search(store(tmp_path / "s", lines))


def test_not_the_folder_of_a_search(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not the folder of a search"):
        read_search(tmp_path)
    (tmp_path / "search.json").write_text(json.dumps({"other": 1}))
    with pytest.raises(BadInput, match="not the record of a search"):
        read_search(tmp_path)
