"""The account of a compaction."""

from __future__ import annotations

import html
import json
from xml.sax.saxutils import escape

import pytest

from refork.compaction import SummaryCall, account, checked_ids, fate, quotes, spellings, untouched, with_ids
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


AWKWARD = [
    "a < b & c > d",
    'say "no"',
    "O'Brien's \"files\"",
    "one\ntwo\n- x < 5",
    "über 100 €",
    "C:\\new\tx",
    "keep &lt; as is",
]
WRITTEN = {
    "as it stands": str,
    "XML": escape,
    "XML with quotes": html.escape,
    "Jinja": lambda text: html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "JSON": lambda text: json.dumps([{"content": text}]),
    "JSON as it is": lambda text: json.dumps([{"content": text}], ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"content": text})),
    "Python": lambda text: str([{"content": text}]),
    "JSON in XML": lambda text: escape(json.dumps({"content": text}, ensure_ascii=False)),
}


@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("form", WRITTEN)
def test_a_text_is_found_however_a_harness_writes_it(text, form):
    prompt = f"Summarise: {WRITTEN[form](text)} The end."
    assert quotes(prompt, text)
    others = [other for other in AWKWARD if other != text]
    assert not any(quotes(prompt, other) for other in others)
    before = [{"role": "user", "content": text, "id": "a"}]
    after = [{"role": "user", "content": "Nothing.", "id": "s"}]
    asked = SummaryCall(({"role": "user", "content": prompt},), "Nothing.")
    assert fate(text, before, account(before, after, calls=[asked])) == "omitted"


def test_a_plain_text_has_one_spelling():
    assert spellings("Never buy for more than 100 USD.") == ("Never buy for more than 100 USD.",)
    assert spellings("a < b")[:2] == ("a < b", "a &lt; b")
