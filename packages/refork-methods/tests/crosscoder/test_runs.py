"""The published sweep, recomputed from its 47 runs."""

import pytest

from refork.errors import BadInput
from refork_methods.crosscoder.runs import summarise_runs

#: Dictionary, exclusive %, whether exclusive features are free of the penalty; then what A and B get right
#: afterwards at k = 160, 45 and 90 (None: not evaluated). Before: A 19 %, B 0 % in every run.
GROUPS = [
    (16384, 0, True, (67, 4), (52, 12), (46, 3)),
    (16384, 0, True, (42, 15), (53, 14), (35, 15)),
    (8192, 0, True, (49, 4), (59, 12), (50, 3)),
    (8192, 0, True, (40, 8), (70, 17), (60, 0)),
    (16384, 10, True, (58, 4), (33, 1), (56, 19)),
    (16384, 10, False, (54, 5), (52, 7), None),
    (16384, 3, True, (50, 3), (50, 6), (41, 9)),
    (16384, 3, False, (52, 8), (43, 6), (42, 7)),
    (16384, 5, True, (58, 3), (48, 6), (45, 7)),
    (16384, 5, False, (50, 4), (46, 3), (50, 3)),
    (8192, 10, True, (83, 0), (43, 6), (52, 9)),
    (8192, 10, False, (44, 8), (57, 20), (53, 2)),
    (8192, 3, True, (56, 6), (49, 6), (37, 9)),
    (8192, 3, False, (50, 5), (44, 1), (44, 6)),
    (8192, 5, True, (51, 4), (57, 2), (64, 3)),
    (8192, 5, False, (26, 2), (45, 3), (52, 13)),
]


def published():
    rows = []
    for size, percent, free, *cells in GROUPS:
        for k, cell in zip((160, 45, 90), cells, strict=True):
            if cell is None:
                continue
            about = {"dict_size": size, "k": k, "model_a_exclusive_pct": percent / 100}
            about["exclusive_sparsity_coef"] = 0 if free else 0.001
            rows.append(
                {
                    "hyperparameters": about,
                    "tool_correctness_A_pre": 19.0,
                    "tool_correctness_A_post": float(cell[0]),
                    "tool_correctness_B_pre": 0.0,
                    "tool_correctness_B_post": float(cell[1]),
                }
            )
    return rows


def test_the_published_means_come_out():
    told = summarise_runs(published())
    a, b = told["A"], told["B"]
    assert told["runs"] == 47
    assert a["before"] == 19
    assert a["above_before"] == 47
    assert (round(a["after"], 1), round(a["gain"], 1), round(a["gain_sd"], 1)) == (50.2, 31.2, 9.7)
    assert (round(b["gain"], 1), round(b["gain_sd"], 1), b["best"]) == (6.7, 4.9, 20)
    # "Every plain run spills" does not hold: one of them is 0.
    assert sum(row["tool_correctness_B_post"] == 0 for row in published() if _plain(row)) == 1


def _plain(row):
    return row["hyperparameters"]["model_a_exclusive_pct"] == 0


def test_the_published_comparisons_come_out():
    told = summarise_runs(published())
    spill, gain = told["plain_or_partitioned"]["B"], told["plain_or_partitioned"]["A"]
    assert spill["n"] == [12, 35]
    assert [round(spill[n], 1) for n in ("plain", "partitioned")] == [8.9, 5.9]
    assert [round(gain[n], 1) for n in ("plain", "partitioned")] == [32.9, 30.6]
    assert (round(spill["p"], 2), round(gain["p"], 2)) == (0.12, 0.51)
    free = told["free_or_penalised"]
    assert [round(free[n], 1) for n in ("free", "penalised")] == [51.7, 47.3]
    assert round(free["p"], 2) == 0.17
    best = {side: max(told["by_k"][side], key=told["by_k"][side].get) for side in ("A", "B")}
    assert best == {"A": "160", "B": "45"}


def test_records_of_another_shape_are_refused():
    with pytest.raises(BadInput, match="no runs"):
        summarise_runs([])
    with pytest.raises(BadInput, match="lacks a field"):
        summarise_runs([{"hyperparameters": {}}])
    assert summarise_runs(published()[:1])["plain_or_partitioned"]["A"] is None
