"""The account of a compaction."""

from __future__ import annotations

import pytest

from refork.compaction import SummaryCall, account, checked_ids, fate, untouched, with_ids
from refork.errors import BadInput

BEFORE = [{"role": "user", "content": f"text {i}.", "id": f"m{i}"} for i in range(4)]
SUMMARY = {"role": "system", "content": "short", "id": "new"}


def test_what_is_dropped_inserted_trimmed_and_summarised() -> None:
    call = SummaryCall((BEFORE[1],), "short")
    result = account(BEFORE, [SUMMARY, BEFORE[3]], seen=["m1"], calls=[call], reason="why")
    assert (result.fired, result.inserted, result.dropped) == (True, ("new",), ("m0", "m1", "m2"))
    assert (result.trimmed, result.summarised, result.summary) == (("m0", "m2"), ("m1",), "short")
    fates = [fate(f"text {i}.", BEFORE, result) for i in range(5)]
    assert fates == ["trimmed", "omitted", "trimmed", "visible", "absent"]


def test_a_text_that_the_summary_repeats_is_visible() -> None:
    kept = {**SUMMARY, "content": "they said: text 1."}
    assert fate("text 1.", BEFORE, account(BEFORE, [kept], seen=["m1"])) == "visible"


def test_untouched_says_why() -> None:
    result = untouched(BEFORE, "within the budget")
    assert (result.fired, result.dropped, result.summary) == (False, (), None)


def test_ids() -> None:
    bare = [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "id": "mine"}]
    assert checked_ids(with_ids(bare)) == ["m0", "mine"]
    named = [{"id": "m1"}, {}, {}, {"id": "m4"}, {}]
    assert checked_ids(with_ids(named)) == ["m1", "m5", "m2", "m4", "m6"]
    with pytest.raises(BadInput, match="no id"):
        checked_ids(bare)
    with pytest.raises(BadInput, match="'mine'"):
        checked_ids([bare[1], bare[1]])
