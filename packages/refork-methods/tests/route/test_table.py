from __future__ import annotations

import builtins
from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput, MissingExtra
from refork_methods.route.table import Outcome, OutcomeTable, read_shares, read_table, write_table

ROWS = [
    Outcome("q1", "a", 1.0, 0.5, 2.0, 0, "one", (1.0, 2.0)),
    Outcome("q1", "a", 0.0, 0.5, None, 1),
    Outcome("q1", "b", 1.0, None, 1.0, 0),
    Outcome("q2", "a", 0.5, 0.25, 3.0, 0, "two", (3.0, 4.0)),
    Outcome("q2", "b", 0.0, 0.0, 1.0, 0),
]


def same(one, other):
    for name in OutcomeTable.__dataclass_fields__:
        left, right = getattr(one, name), getattr(other, name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=name)
        else:
            assert left == right, name


def dense(rewards):
    return OutcomeTable.from_arrays(np.array(rewards, dtype=float), [*"abcd"[: len(rewards[0])]])


def test_means_and_counts():
    table = OutcomeTable.of(ROWS)
    means, counts = table.means()
    assert means.tolist() == [[0.5, 1.0], [0.5, 0.0]]
    assert counts.tolist() == [[2, 1], [1, 1]]
    costs = table.mean_of(table.cost)
    assert costs[0, 0] == 0.5
    assert np.isnan(costs[0, 1])  # unknown is not 0 ...
    assert costs[1, 1] == 0  # ... and 0 is 0
    assert np.isnan(table.mean_of(table.latency)[0, 0])
    assert list(table.rows())[2] == Outcome("q1", "b", 1.0, None, 1.0, 0, "one", (1.0, 2.0))
    same(OutcomeTable.of(table.rows()), table)


def test_weights_count_in_means():
    rows = [Outcome("q", "a", 1.0, weight=3.0), Outcome("q", "a", 0.0, repeat=1, weight=1.0)]
    assert OutcomeTable.of(rows).means()[0].tolist() == [[0.75]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reward": float("nan")}, "NaN or infinite"),
        ({"reward": 1.5}, r"outside 0 \.\. 1"),
        ({"reward": -0.1}, r"outside 0 \.\. 1"),
        ({"cost": -1.0}, "cost is negative"),
        ({"latency": float("inf")}, "latency is negative or infinite"),
        ({"repeat": 0, "worker": "a"}, "there twice"),
        ({"worker": ""}, "not empty"),
        ({"text": "another"}, "two different text"),
        ({"features": (9.0, 9.0)}, "two different features"),
        ({"weight": 1.0}, "some rows have a weight"),
    ],
)
def test_bad_rows_are_refused_by_name(change, why):
    rows = [*ROWS]
    rows[1] = replace(rows[1], **change)
    with pytest.raises(BadInput, match=why):
        OutcomeTable.of(rows)


def test_other_bad_tables():
    with pytest.raises(BadInput, match="no rows"):
        OutcomeTable.of([])
    with pytest.raises(BadInput, match="'b' is not among a"):
        OutcomeTable.of(ROWS, workers=["a"])
    with pytest.raises(BadInput, match="row 1: query 'q', worker 'a' and 1 more"):
        OutcomeTable.of([Outcome("q", "a", 2.0), Outcome("q", "a", 3.0, repeat=1)])
    with pytest.raises(BadInput, match="positive"):
        OutcomeTable.of([Outcome("q", "a", 1.0, weight=0.0)])
    with pytest.raises(BadInput, match="no features and others have"):
        OutcomeTable.of([Outcome("q", "a", 1.0, features=(1.0,)), Outcome("r", "a", 1.0)])
    with pytest.raises(BadInput, match="different lengths"):
        OutcomeTable.of(
            [Outcome("q", "a", 1.0, features=(1.0,)), Outcome("r", "a", 1.0, features=(1.0, 2.0))]
        )
    with pytest.raises(BadInput, match="finite numbers"):
        OutcomeTable.of([Outcome("q", "a", 1.0, features=(float("nan"),))])
    with pytest.raises(BadInput, match=r"not \[queries, 2 workers"):
        OutcomeTable.from_arrays(np.zeros((2, 3, 1)), ["a", "b"])
    with pytest.raises(BadInput, match="do not fit"):
        OutcomeTable.from_arrays(np.zeros((2, 2, 1)), ["a", "b"], ["one"])


def test_a_fit_refuses_a_worker_without_outcomes_unless_it_starts_cold():
    table = OutcomeTable.of(ROWS[3:], workers=["a", "b", "new"])
    with pytest.raises(BadInput, match="'new' has no outcome"):
        table.check_fit()
    with pytest.raises(BadInput, match="'stranger' has no outcome"):
        table.check_fit(["a", "b", "stranger"])
    table.check_fit(cold=["new"])
    table.check_fit(["a", "b"])


def test_a_fit_refuses_one_worker_and_equal_rewards():
    with pytest.raises(BadInput, match="nothing to choose"):
        dense([[[1], [0]]]).check_fit(["a"])
    with pytest.raises(BadInput, match="all rewards are equal"):
        dense([[[1], [1]], [[1], [1]]]).check_fit()


def test_a_fit_refuses_unequal_repeats_without_weights():
    rows = [*ROWS[:3], *ROWS[3:]]
    with pytest.raises(BadInput, match="1 to 2 repeats and no weights"):
        OutcomeTable.of(rows).check_fit()
    OutcomeTable.of([replace(row, weight=1.0) for row in rows]).check_fit()
    with pytest.raises(BadInput, match="'q2' has no outcome of worker 'b'"):
        OutcomeTable.of(rows[:4]).check_fit()


def test_a_fit_refuses_test_queries_and_other_turns_of_their_tasks():
    rows = [Outcome(f"t{i}#{turn}/x", w, (i + turn) % 2) for i in range(4) for turn in (0, 1) for w in "ab"]
    table = OutcomeTable.of(rows)
    fit, test = table.split(np.random.default_rng(0), 0.25)
    assert (len(fit.queries), len(test.queries)) == (6, 2)
    assert len({query.partition("#")[0] for query in test.queries}) == 1
    fit.check_fit(tests=test.queries)
    with pytest.raises(BadInput, match="2 queries to fit are of test tasks"):
        table.check_fit(tests=test.queries[:1])  # the other turn of that task leaks as well
    with pytest.raises(BadInput, match="leaves one part empty"):
        table.split(np.random.default_rng(0), 0.01)


def test_select_keeps_the_order_and_refuses_strangers():
    table = OutcomeTable.of(ROWS)
    part = table.select(queries={"q2"}, workers={"b", "a"})
    assert (part.queries, part.workers, part.reward.tolist()) == (("q2",), ("a", "b"), [0.5, 0.0])
    assert part.texts == ("two",)
    assert part.features.tolist() == [[3.0, 4.0]]
    with pytest.raises(BadInput, match="no worker 'z'"):
        table.select(workers=["z"])


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_files_give_the_table_back(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    for number, rows in enumerate((ROWS, [Outcome('é,\n"q', "a", 1 / 3, weight=2.0)])):
        table = OutcomeTable.of(rows)
        file = tmp_path / f"{number}.{ending}"
        write_table(table, file)
        same(read_table(file), table)
        assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("query,worker\nq,a\n", "reward is missing"),
        ("query,worker,reward\nq,a,\n", "reward is missing"),
        ("query,worker,reward\nq,a,good\n", "must be a number"),
        ("query,worker,reward\nq,a,nan\n", "must be a number"),
        ("query,worker,reward,price\nq,a,1,2\n", "unknown column 'price'"),
        ("query,worker,reward\nq,a,1,2\n", "one cell for each column"),
        ("query,worker,reward,repeat\nq,a,1,0.5\n", "whole number"),
        ("query,worker,reward,repeat\nq,a,1,inf\n", "whole number"),
        ("query,worker,reward,reward\nq,a,1,0\n", "two columns"),
        ("query,worker,reward\n", "no rows"),
    ],
)
def test_bad_csv_is_refused(tmp_path, text, why):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(BadInput, match=why):
        read_table(file)


def test_a_spreadsheet_s_byte_order_mark_and_line_ends_are_read_over(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xef\xbb\xbfquery,worker,reward\r\nq,a,1\r\nq,b,0\r\n")
    assert read_table(file).workers == ("a", "b")
    lines = tmp_path / "t.jsonl"
    rows = (f'{{"query": "q", "worker": "{name}", "reward": 1}}\r\n' for name in "ab")
    lines.write_bytes(b"\xef\xbb\xbf" + "".join(rows).encode())
    assert read_table(lines).workers == ("a", "b")


def test_other_bad_files(tmp_path, monkeypatch):
    (tmp_path / "t.jsonl").write_text('{"query": "q", "worker": "a", "reward": true}\n')
    with pytest.raises(BadInput, match="True; it must be a number"):
        read_table(tmp_path / "t.jsonl")
    with pytest.raises(BadInput, match="no such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "t.txt").write_text("")
    with pytest.raises(BadInput, match="not a kind of table"):
        read_table(tmp_path / "t.txt")
    (tmp_path / "t.csv").write_bytes(b"query,worker,reward\n\xff,a,1\n")
    with pytest.raises(BadInput, match="UTF-8"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.parquet").write_text("no")
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="pip install 'datasets>="):
        read_table(tmp_path / "t.parquet")


def test_a_file_that_is_no_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_text("no")
    with pytest.raises(BadInput, match="no Parquet file"):
        read_table(tmp_path / "t.parquet")


def test_probabilities_of_a_foreign_router(tmp_path):
    table, file = OutcomeTable.of(ROWS), tmp_path / "p.csv"
    file.write_text("query,b,a\nq2,1,0\nother,0.5,0.5\nq1,0.25,0.75\n")
    assert read_shares(file, table).tolist() == [[0.75, 0.25], [0, 1]]
    for text, why in (
        ("query,a\nq1,1\n", "columns must be query and a, b"),
        ("query,a,b\nq1,1,0\n", "'q2' has no probabilities"),
        ("query,a,b\nq1,1,0\nq1,1,0\n", "there twice"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=why):
            read_shares(file, table)
