import json

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.speculate.step_cost import StepCost


def test_between_shapes_it_is_linear_and_nothing_is_guessed_outside():
    cost = StepCost.of({4: 2.0, 2: 1.0, 8: 3.0}, {1: 0.5, 2: 0.7})
    assert cost.range == (2, 8)
    assert cost.verify(np.array([2, 3, 6, 8])) == pytest.approx([1.0, 1.5, 2.5, 3.0])
    assert cost.draft(2) == pytest.approx(0.7)
    assert cost.step(np.array([4]), 1) == pytest.approx([2.5])
    assert cost.sps(np.array([4]), 1) == pytest.approx([0.4])
    for outside in (1, 9):
        with pytest.raises(BadInput, match="covers 2 to 8"):
            cost.verify(np.array([outside]))
    with pytest.raises(BadInput, match="covers 1 to 2"):
        cost.draft(3)


def test_a_drafts_token_may_cost_a_share_of_a_requests():
    cost = StepCost.of({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, {1: 0.5, 2: 0.5}, shares={1: 0.25})
    assert cost.share(1) == 0.25
    assert cost.share(2) == 1.0
    assert cost.step(np.array([1, 5]), 1) == pytest.approx([1.5, 2.5])
    # Those beside the drafted one are requests: 3 tokens cost 3 s, two drafts a quarter of 2 s.
    assert cost.step(np.array([5]), 1, others=2) == pytest.approx([4.0])
    assert cost.sps(np.array([5]), 1, others=2) == pytest.approx([0.25])
    assert cost.step(np.array([6]), 2) == pytest.approx([6.5])
    assert cost.step(np.array([6])) == pytest.approx([6.0])
    with pytest.raises(BadInput, match="no draft of them"):
        StepCost.of({1: 1.0}, {1: 0.5}, shares={3: 0.25})
    with pytest.raises(BadInput, match=r"share in \[0, 1\]"):
        StepCost.of({1: 1.0}, {1: 0.5}, shares={1: 1.25})


def test_tables_of_the_first_format_have_no_shares(tmp_path):
    file = tmp_path / "cost.json"
    file.write_text(json.dumps({"format": "refork step cost 1", "verify": [[1, 1.0]], "draft": [[1, 0.5]]}))
    cost = StepCost.load(file)
    assert cost.shares is None
    assert cost.share(1) == 1.0
    assert cost.to_json()["format"] == "refork step cost 2"


def test_no_profiled_draft_costs_nothing():
    assert StepCost.of({1: 1.0}).draft(7) == 0.0


def test_measured_times_are_forced_monotone():
    cost = StepCost.of({1: 1.0, 2: 0.8, 3: 1.5})
    assert cost.seconds.tolist() == [1.0, 1.0, 1.5]


def test_what_it_covers():
    cost = StepCost.of(dict.fromkeys(range(1, 17), 1.0), {1: 1.0, 2: 1.0})
    assert cost.covers(2, 7)
    assert not cost.covers(4, 3), "no draft was profiled for four requests"
    assert not cost.covers(2, 8)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), None])
def test_times_must_be_positive(seconds):
    with pytest.raises(BadInput, match="positive time"):
        StepCost.of({1: 1.0, 2: seconds})


def test_gaps_are_refused():
    with pytest.raises(BadInput, match="gap between 2 and 8 tokens"):
        StepCost.of({1: 1.0, 2: 1.0, 8: 2.0})
    with pytest.raises(BadInput, match="gap between 1 and 4 requests"):
        StepCost.of({1: 1.0}, {1: 1.0, 4: 1.0})
    assert StepCost.of({1: 1.0, 2: 1.0, 8: 2.0}, max_ratio=4.0).range == (1, 8)


def test_no_shape_at_all():
    with pytest.raises(BadInput, match="at least one shape"):
        StepCost.of({})


def test_a_table_built_by_hand_must_be_in_order():
    with pytest.raises(BadInput, match="must rise"):
        StepCost(np.array([2, 1]), np.array([1.0, 1.0]))
    with pytest.raises(BadInput, match="must rise"):
        StepCost(np.array([1, 2]), np.array([2.0, 1.0]))
    with pytest.raises(BadInput, match="must rise"):
        StepCost(np.array([0, 1]), np.array([1.0, 1.0]))
    with pytest.raises(BadInput, match="2 shapes and 1 times"):
        StepCost(np.array([1, 2]), np.array([1.0]))
    with pytest.raises(BadInput, match="positive time"):
        StepCost(np.array([1, 2]), np.array([0.0, 1.0]))


def test_it_comes_back_from_its_file(tmp_path):
    cost = StepCost.of({1: 1.0, 2: 1.25}, {1: 0.5}, shares={1: 0.75}, about={"model": "tiny"})
    file = tmp_path / "cost.json"
    cost.save(file)
    again = StepCost.load(file)
    assert again.to_json() == cost.to_json()
    assert [f.name for f in tmp_path.iterdir()] == ["cost.json"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([1], "not a JSON object"),
        ({"format": "another"}, "unknown step-cost format"),
        ({"verify": [[1]]}, "no step-cost table"),
        ({"verify": [[1, None]]}, "positive time"),
        ({"verify": [[1, 1.0], [1, 2.0]]}, "twice"),
        ({"verify": []}, "at least one shape"),
    ],
)
def test_files_that_are_no_tables(tmp_path, body, words):
    file = tmp_path / "cost.json"
    file.write_text(json.dumps(body))
    with pytest.raises(BadInput, match=words):
        StepCost.load(file)


def test_a_file_that_is_not_there_or_not_json(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        StepCost.load(tmp_path / "none.json")
    (tmp_path / "text").write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        StepCost.load(tmp_path / "text")
