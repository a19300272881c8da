import json

import pytest

from refork.errors import BadInput
from refork.tree import NewNode, Producer, Score, Tree
from refork_methods.evolve.compare import compare_judges
from refork_methods.evolve.on_files import (
    SwapTerms,
    compare_files,
    gate_files,
    parse_reads,
    stale_files,
    write_stale,
)
from refork_methods.evolve.swap import Verdict

TRUTH = [int(i % 4 < 2) for i in range(80)]


def judged(wrong):
    return [1 - y if i in wrong else y for i, y in enumerate(TRUTH)]


OLD, NEW = judged(range(20)), judged({1, 2})


@pytest.fixture
def files(tmp_path):
    rows = [
        {"item": f"a{i}", "judge": judge, "value": value}
        for judge, values in (("old", OLD), ("new", NEW[:70]), ("mean", TRUTH))
        for i, value in enumerate(values)
    ]
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    anchor = [
        {"id": f"a{i}", "label": y, "source": "ai" if i % 3 else "human"} for i, y in enumerate(TRUTH[:60])
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in anchor))
    return tmp_path / "v.jsonl", tmp_path / "a.jsonl"


@pytest.fixture
def tree(tmp_path):
    """The same verdicts on a tree: judges are producers, and a mean reads the old one."""
    with Tree.open(tmp_path / "t.db") as made:
        root = made.append([NewNode(kind="task", text="t")])[0]
        nodes = made.append(
            [NewNode(kind="action", parent=root.id, text=f"a{i}", extra={"source": "ai"}) for i in range(80)]
        )
        old, new = Producer("old", "1"), Producer("new", "1")
        made.add_producer(old)
        made.add_producer(new)
        mean = Producer("mean", "1", {}, (old.id,))
        made.add_producer(mean)
        for producer, values in ((old, OLD), (new, NEW[:70]), (mean, [0.5] * 80)):
            made.add_scores(
                Score(node.id, "good", float(v), producer.id) for node, v in zip(nodes, values, strict=False)
            )
    rows = [json.dumps({"id": node.id, "label": y}) for node, y in zip(nodes, TRUTH, strict=True)]
    (tmp_path / "ta.jsonl").write_text("\n".join(rows[:60]))
    return tmp_path / "t.db", tmp_path / "ta.jsonl"


def test_files_give_the_answer_and_what_is_stale(files, tmp_path):
    verdicts, anchor = files
    found = gate_files([verdicts], "old", "new", anchor, reads=["mean=old"])
    assert found.answer == "yes"
    assert found.stale.judges == ("old", "mean")
    assert (len(found.stale.ids), len(found.stale.covered)) == (160, 70)
    assert found.stale.to_rescore == tuple(f"a{i}" for i in range(70, 80))
    assert found.stringency["old"] is not None  # sources that only the anchor tells
    write_stale(found.stale, tmp_path / "out" / "s.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out" / "s.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list(found.stale.ids)
    assert sum(row["covered"] for row in rows) == 70


def test_a_tree_gives_the_same_answer_and_its_producers_say_what_is_stale(files, tree):
    plain = gate_files([files[0]], "old", "new", files[1])
    found = gate_files([tree[0]], "old", "new", tree[1])
    assert (found.answer, found.new.right, found.old.right) == (
        plain.answer,
        plain.new.right,
        plain.old.right,
    )
    assert found.stale.judges == ("old", "mean")
    assert (len(found.stale.ids), len(found.stale.to_rescore), found.stale.unaffected) == (160, 10, 70)


def test_what_is_stale_on_a_tree_is_what_retirement_takes(tree):
    found = stale_files([tree[0]], "old")
    with Tree.open(tree[0]) as opened:
        lost = opened.retire(Producer("old", "1").id, "swapped")
    assert sum(lost.scores.values()) == len(found.ids)
    with pytest.raises(BadInput, match="no live judge is 'old'"):
        stale_files([tree[0]], "old")
    assert stale_files([tree[0]], "new").judges == ("new",)


def test_stale_scores_without_a_successor(files):
    found = stale_files([files[0]], "old")
    assert (len(found.ids), found.covered, len(found.to_rescore)) == (80, (), 80)
    assert len(stale_files([files[0]], "old", new="new").covered) == 70
    with pytest.raises(BadInput, match="judges here: mean, new, old"):
        stale_files([files[0]], "older")


def test_judges_of_one_name_are_told_apart_by_their_ids(tree):
    with Tree.open(tree[0]) as opened:
        node = next(iter(opened.leaves()))
        again = Producer("old", "2")
        opened.add_producer(again)
        opened.add_scores([Score(node.id, "good", 1.0, again.id), Score(node.id, "short", 0.0, again.id)])
    with pytest.raises(BadInput, match="several judges fit 'old'"):
        stale_files([tree[0]], "old")
    assert len(stale_files([tree[0]], again.id[:10]).ids) == 2
    with pytest.raises(BadInput, match="2 names"):
        stale_files([tree[0]], "mean", new=again.id)
    assert stale_files([tree[0]], "mean", new=again.id, name="good").judges == ("mean",)


def test_requests_that_cannot_be_are_refused(files, tree):
    with pytest.raises(BadInput, match="true labels"):
        gate_files([files[0]], "old", "new", None)
    with pytest.raises(BadInput, match="gated alone"):
        gate_files([tree[0], files[0]], "old", "new", files[1])
    with pytest.raises(BadInput, match="knows which producer"):
        gate_files([tree[0]], "old", "new", tree[1], reads=["mean=old"])
    with pytest.raises(BadInput, match="unknown rule"):
        gate_files([files[0]], "old", "new", files[1], SwapTerms(rule="coin"))
    with pytest.raises(BadInput, match="--reads"):
        parse_reads(["mean"])


def test_items_that_were_shown_are_refused(files, tmp_path):
    (tmp_path / "seen").write_text("a3\n")
    with pytest.raises(BadInput, match="1 anchor items were shown"):
        gate_files([files[0]], "old", "new", files[1], seen=tmp_path / "seen")


def test_every_judge_and_pair_is_compared(files):
    found = compare_files([files[0]], files[1])
    assert [(row.judge, row.items) for row in found.judges] == [("mean", 80), ("new", 70), ("old", 80)]
    assert [row.anchor.right for row in found.judges] == [60, 58, 40]
    pair = found.pairs[2]
    assert (pair.one, pair.other, pair.shared) == ("new", "old", 70)
    assert pair.disagree.estimate == pytest.approx(18 / 70)
    assert pair.difference.interval.estimate == pytest.approx(-18 / 60)
    assert pair.difference.p < pair.p < 0.001  # corrected for three pairs
    assert compare_files([files[0]], None).pairs[0].p is None


def test_on_a_tree_what_gives_no_verdicts_is_no_judge(tree):
    assert [row.judge for row in compare_files([tree[0]], tree[1]).judges] == ["new", "old"]


def test_a_judge_whose_votes_all_tie_has_no_acceptance():
    rows = [Verdict("1", "a", "x", 1), Verdict("2", "a", "x", 0), Verdict("3", "b", "x", 1)]
    one, other = compare_judges(rows, {"x": 1}, repeats="majority").judges
    assert (one.judge, one.items, one.acceptance, one.anchor) == ("a", 0, None, None)
    assert other.acceptance.estimate == 1


def test_judges_without_shared_items_or_anchors_have_nothing_to_compare():
    rows = [Verdict("1", "a", "x", 1), Verdict("2", "b", "y", 0)]
    pair = compare_judges(rows).pairs[0]
    assert (pair.shared, pair.disagree, pair.difference, pair.p) == (0, None, None, None)
    with pytest.raises(BadInput, match="no verdicts"):
        compare_judges([])
    with pytest.raises(BadInput, match="label is 2"):
        compare_judges(rows, {"x": 2})
