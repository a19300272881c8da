"""Where the states of the merged graph are drawn."""

from __future__ import annotations

import pytest

from refork import Tree
from refork.errors import BadInput
from refork.tree.view import TreeView
from refork_methods.credit.graph.view import layers, state_nodes


def test_columns_are_distances_and_ends_stand_last():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (2, 4)]
    columns, places = layers(5, edges, [0], [4])
    assert columns == [0, 1, 1, 2, 3]
    assert places[0] == places[3] == places[4] == 0
    assert sorted([places[1], places[2]]) == [-0.5, 0.5]


def test_places_avoid_a_crossing():
    """0 over 1, then 2 under 1 and 3 under 0: the second column turns round."""
    columns, places = layers(5, [(4, 0), (4, 1), (0, 3), (1, 2)], [4])
    assert columns == [1, 1, 2, 2, 0]
    assert (places[0] < places[1]) == (places[3] < places[2])


def test_what_no_start_leads_to_stands_behind():
    assert layers(3, [(0, 1)], [0])[0] == [0, 1, 2]
    assert layers(1, [], [])[0] == [0]
    assert layers(2, [(0, 0)], [0], [1]) == ([0, 1], [0.0, 0.0])


def test_merged_states_of_a_task(told):
    with Tree.open(told.file, "r") as tree:
        found = state_nodes(TreeView(tree), told.task, None)
        assert found["score"] == "success"
        starts = [state for state in found["states"] if state["column"] == 0]
        assert [state["name"] for state in starts] == ["Well?"]
        assert {state["kind"] for state in found["states"]} == {"state", "end"}
        assert (
            sum(state["visits"] for state in found["states"] if state["kind"] == "end") == found["rollouts"]
        )
        assert tree.has(starts[0]["leaf"])
        with pytest.raises(BadInput, match="no rollout"):
            state_nodes(TreeView(tree), told.evil, None)
