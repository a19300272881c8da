"""What a record may be, splits by instance, and prices that are never guessed."""

import json

import pytest

from refork.errors import BadInput
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.planted import planted_records
from refork_methods.gate.records import (
    Rates,
    Record,
    completed,
    critic_names,
    labelled,
    measured,
    price_of,
    prices_from,
    read_jsonl,
    split,
)


class TestRecord:
    def test_missing_says_why_only_where_there_is_no_outcome(self):
        assert Record("a", "0", None, {}).missing == "no outcome"
        assert Record("a", "0", True, {}, missing="oracle error").missing is None

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("instance", "", "names"),
            ("right", 1, "outcome is 1"),
            ("verdicts", {"test": 0.7}, "test is 0.7"),
            ("costs", {"test": -1.0}, "cost of 'test'"),
            ("costs", {"test": float("nan")}, "cost of 'test'"),
            ("step", -1, "counted from 0"),
        ],
    )
    def test_what_is_refused(self, field, value, says):
        given = {"instance": "a", "candidate": "0", "right": True, "verdicts": {}} | {field: value}
        with pytest.raises(BadInput, match=says):
            Record(**given)

    def test_a_leaking_test_is_refused(self):
        tests = {"test": frozenset({"t1", "t2"}), "verify": frozenset({"t2", "t3"})}
        with pytest.raises(BadInput, match="1 tests of critic 'test' are also in the oracle's suite: t2"):
            Record("a", "0", True, {"test": True}, tests=tests)

    def test_an_empty_candidate_fails_critics_it_never_met(self):
        records = completed(
            [Record("a", "0", True, {"x": True}, empty=True), Record("b", "0", True, {"y": True})]
        )
        assert records[0].right is False
        assert records[0].verdicts == {"x": False, "y": False}
        assert critic_names(records) == ("x", "y")


class TestSplit:
    def test_instances_stay_together_and_the_seed_decides(self):
        model = CriticModel(0.5, (Critic("test", 0.9, 0.4, 1),), Kernel(0.2, 0.1))
        records = planted_records(model, 20, draws=2, steps=2)
        fit, test = split(records, 0.75, seed=3)
        assert len({r.instance for r in fit}) == 15
        assert {r.instance for r in fit}.isdisjoint(r.instance for r in test)
        assert len(fit) + len(test) == len(records) == 80
        assert split(records, 0.75, seed=3) == (fit, test)
        assert split(records, 0.75, seed=4) != (fit, test)

    @pytest.mark.parametrize("share", [0.0, 1.0, 0.01])
    def test_a_split_with_an_empty_side_is_refused(self, share):
        with pytest.raises(BadInput):
            split([Record(name, "0", True, {}) for name in "abc"], share)


class TestPrices:
    def test_conversion_only_by_a_given_rate(self):
        rates = Rates(unit="money", seconds=0.01)
        assert rates.value({"seconds": 600, "money": 2}) == 8.0
        with pytest.raises(BadInput, match="no rate from tokens to money"):
            rates.value({"tokens": 1000})
        with pytest.raises(BadInput, match="unknown, not 0"):
            rates.value({})
        assert rates.known("seconds")
        assert not rates.known("tokens")

    @pytest.mark.parametrize("bad", [{"seconds": -1}, {"unit": "hours"}, {"unit": "seconds", "seconds": 2.0}])
    def test_rates_that_are_none(self, bad):
        with pytest.raises(BadInput):
            Rates(**bad)

    def test_measured_prices_and_those_that_are_not_known(self):
        records = [
            Record("a", "0", True, {}, {"verify": 10.0, "test": 1.0}),
            Record("b", "0", True, {}, {"verify": 20.0}),
        ]
        seen = measured(records)
        assert (seen["verify"].mean, seen["verify"].calls, seen["test"].calls) == (15.0, 2, 1)
        assert price_of("verify", {"verify": 7.0}, seen) == 7.0
        with pytest.raises(BadInput, match="price of 'generate' is unknown, and unknown is not 0"):
            prices_from(records, 100.0)
        assert prices_from(records, 100.0, {"generate": 5}) == Prices(100, 15, 5)
        with pytest.raises(BadInput, match="finite amount of 0 or more"):
            prices_from(records, 100.0, {"generate": -5})


def test_labelled_counts_every_reason():
    kept = labelled(
        [
            Record("a", "0", None, {}),
            Record("b", "0", None, {}, missing="oracle error"),
            Record("c", "0", False, {}),
        ]
    )
    assert [r.instance for r in kept.records] == ["c"]
    assert kept.dropped == {"no outcome": 1, "oracle error": 1}


def test_a_line_may_hold_any_character(tmp_path):
    line = json.dumps(
        {"instance": "a\u2028b\x85", "right": True, "verdicts": {"test": True}}, ensure_ascii=False
    )
    (tmp_path / "r.jsonl").write_text(line + "\n", encoding="utf-8")
    assert read_jsonl(tmp_path / "r.jsonl")[0].instance == "a\u2028b\x85"


def test_a_file_from_windows_is_read(tmp_path):
    line = b'{"instance": "i", "right": true, "verdicts": {"test": true}}\r\n'
    (tmp_path / "r.jsonl").write_bytes(b"\xef\xbb\xbf" + line)
    assert read_jsonl(tmp_path / "r.jsonl")[0].instance == "i"
