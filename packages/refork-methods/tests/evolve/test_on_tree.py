import pytest

from evolve.toy_search import SETTINGS, SLOTS, START, runtime
from refork.errors import BadInput
from refork.tree import NewNode, Producer, Score, Tree
from refork_methods.evolve.erase import selective_erasure
from refork_methods.evolve.on_files import SwapTerms, compare_files
from refork_methods.evolve.on_tree import (
    live_outcomes,
    record_producer,
    score_name,
    slot_producer,
    would_retire,
    write_records,
)
from refork_methods.evolve.records import Cell
from refork_methods.evolve.search import Settings, run


def displaced(tree, slots):
    """The slots after the style judge was replaced, and what that took out of sight."""
    (old,) = (slot for slot in slots if slot.name == "style")
    lost = tree.retire(tree.add_producer(slot_producer(old)), "judge replaced")
    return [slot.replaced("j9") if slot == old else slot for slot in slots], lost


@pytest.fixture
def grown():
    """Records of one epoch on a tree: each artifact a node."""
    archive = run(Settings(60, first=100, gate=SETTINGS.gate), START, SLOTS, runtime()[0])
    with Tree.memory() as tree:
        root = tree.append([NewNode(kind="task", text="archive")])[0]
        drafts = [
            NewNode(kind="action", parent=root.id, key=r.artifact, text=r.artifact) for r in archive.records
        ]
        nodes = tree.append(drafts)
        places = {r.artifact: node.id for r, node in zip(archive.records, nodes, strict=True)}
        yield tree, archive, places


def test_erasing_on_the_tree_is_the_pure_erasure(grown):
    tree, archive, places = grown
    assert write_records(tree, archive.records, places) == 60
    assert write_records(tree, archive.records, places) == 0
    before = list(archive.slots.values())
    everything = live_outcomes(tree, archive.cells, places)
    assert everything == {(r.artifact, r.cell): r.outcome for r in archive.records}
    foretold = would_retire(tree, slot_producer(archive.slots["style"]).id)
    after, lost = displaced(tree, before)
    split = selective_erasure(archive.records, after)
    assert (foretold.scores, foretold.producers) == (lost.scores, lost.producers)
    assert sum(lost.scores.values()) == len(split.erased) > 0
    assert live_outcomes(tree, archive.cells, places) == {
        (r.artifact, r.cell): r.outcome for r in split.remaining
    }


def test_every_reader_loses_an_erased_score_and_what_was_derived_from_it(grown):
    tree, archive, places = grown
    write_records(tree, archive.records, places)
    slot = archive.slots["style"]
    other = Producer("mean of utilities", "1", {}, (slot_producer(slot).id,))
    tree.add_producer(other)
    record = next(r for r in archive.records if r.cell.slot == "style")
    node = places[record.artifact]
    tree.add_scores([Score(node, "mean", 0.5, other.id)])
    kept = next(r for r in archive.records if r.cell.slot is None)
    displaced(tree, archive.slots.values())
    assert list(tree.scores(node)) == []
    assert tree.score_map("mean", [node]) == tree.score_map(score_name(record.cell), [node]) == {}
    assert list(tree.scores(producer=slot_producer(slot).id)) == []
    assert [s.value for s in tree.scores(places[kept.artifact])] == [kept.outcome]
    assert len(list(tree.scores(node, retired=True))) == 2


def test_rescored_artifacts_stand_beside_the_erased_ones(grown):
    tree, archive, places = grown
    write_records(tree, archive.records, places)
    before = list(archive.slots.values())
    after, _ = displaced(tree, before)
    assert displaced(tree, before)[1].scores == {}
    stale = next(r for r in archive.records if r.cell.slot == "style")
    with pytest.raises(BadInput, match="retired"):
        write_records(tree, [stale], places)
    again = type(stale)(
        99, stale.node, stale.cell, 1 - stale.outcome, "j9", (("proof", 0), ("style", 1)), stale.artifact
    )
    assert write_records(tree, [again], places) == 1
    assert live_outcomes(tree, [stale.cell], places)[stale.artifact, stale.cell] == again.outcome
    back = [s.replaced("j5") if s.name == "style" else s for s in after]
    assert slot_producer(back[0]).id != slot_producer(before[0]).id or back[0] == before[0]
    assert record_producer(again).id == slot_producer(next(s for s in after if s.name == "style")).id


def test_what_has_no_place_is_refused(grown):
    tree, archive, _ = grown
    with pytest.raises(BadInput, match="no node in the tree"):
        write_records(tree, archive.records, {})
    assert score_name(Cell("a/b", "c")) == "utility/a//b/c"


def test_no_judge_of_a_tree_is_left_out_of_a_comparison_in_silence(tmp_path):
    """A judge whose scores leave open what is a verdict is named; a producer without any is none."""
    file = tmp_path / "t.db"
    with Tree.open(file) as tree:
        root = tree.append([NewNode(kind="task", text="x")])[0].id
        nodes = [
            n.id for n in tree.append([NewNode(kind="action", parent=root, text=str(i)) for i in range(4)])
        ]
        one, two, graded = (tree.add_producer(Producer(name)) for name in ("one", "two", "graded"))
        tree.add_scores([Score(node, "ok", float(i % 2), one) for i, node in enumerate(nodes)])
        tree.add_scores([Score(node, "ok", 1.0, two) for node in nodes])
        tree.add_scores([Score(node, "length", 0.25, graded) for node in nodes])
    assert {row.judge for row in compare_files([file], None).judges} == {"one", "two"}
    with Tree.open(file) as tree:
        tree.add_scores([Score(node, "style", 0.0, two) for node in nodes])
    with pytest.raises(BadInput, match="2 names"):
        compare_files([file], None)
    assert {row.judge for row in compare_files([file], None, SwapTerms(name="ok")).judges} == {"one", "two"}
