"""Foreign text is shown, not obeyed: one set of characters for terminals and pages."""

import io
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refork.visible import ACTS, DrawnStream, VisibleStream, drawn, json_text, show_only, visible
from support.repository import ROOT

SCRIPT = ROOT / "packages/refork/src/refork/viewer/live/web/text.js"


def test_controls_and_directions_become_signs_and_scripts_stay():
    assert visible("a\x1b[31mb\u202ec\ud800d\x7f\re") == "a␛[31mb\ufffdc\ufffdd␡␍e"
    assert visible("x\u0085y\u2028z\u200b\u2066\U000e0041\u00ad") == "x\ufffdy\ufffdz\ufffd\ufffd\ufffd\ufffd"
    for kept in ("a\n\tb", "e\u0301 👩\u200d🔬 ن\u200cم ❤\ufe0f", "日本語 ½ \u00a0 [red]"):
        assert visible(kept) == kept


def test_every_character_is_one_character_and_none_that_acts_is_left():
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        shown = visible(char)
        assert len(shown) == 1
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
            assert (shown == char) is (char in "\n\t"), hex(code)
        if unicodedata.category(char) == "Cf" and unicodedata.bidirectional(char) not in (
            "L",
            "AN",
            "AL",
            "R",
        ):
            # Joiners; signs that stand around numbers in Arabic and Syriac have a width.
            assert (shown == char) is (code in (0x200C, 0x200D)) or code > 0x10000, hex(code)


def test_pages_drawn_by_the_browser_take_the_same_characters():
    found = re.search(r"new RegExp\((.*?)\"gu\"", SCRIPT.read_text(), re.DOTALL)
    parts = re.findall(r'"([^"]*)"', found[1])
    assert "".join(parts).replace("\\\\", "\\") == f"[{ACTS}\\u{{e0000}}-\\u{{e0fff}}]"


@given(st.text() | st.text(alphabet="\x1b[]0;m\x07\x9b\u202e\ud800\x7f\U000e0041a"))
@example("\x7f\x9b\u202e\ud800\U000e0041")
def test_json_says_the_same_and_acts_on_nothing(text):
    made = json_text({"a": [text]}, indent=1)
    assert json.loads(made) == {"a": [text]}
    assert visible(made) == made


@given(st.lists(st.text(alphabet="\x1b[]031;?hm\x07\r\nx\u202e")))
def test_no_cut_between_writes_lets_anything_through(texts):
    under = io.StringIO()
    stream = VisibleStream(under)
    for text in texts:
        assert stream.write(text) == len(text)
    assert visible(under.getvalue()) == under.getvalue()


def test_styles_of_others_are_left_out_and_ours_are_drawn():
    under = io.StringIO()
    VisibleStream(under).write("\x1b[31mred\x1b[0m \x1b[2J\x1b[31\x1b[mm")
    assert under.getvalue() == "red ␛[2J␛[31m"
    under = io.StringIO()
    DrawnStream(under).write("\x1b[1;31mred\x1b[0m\x1b[?25l\r\x1b[2K \x1b]0;title\x07\x1b[6n\x9b2J\u202e")
    assert under.getvalue() == "\x1b[1;31mred\x1b[0m\x1b[?25l\r\x1b[2K ␛]0;title␇␛[6n\ufffd2J\ufffd"


def test_all_that_a_process_prints_is_shown_from_then_on(monkeypatch):
    out, err = io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    show_only()
    first = sys.stdout
    show_only()
    assert sys.stdout is first  # once
    print("a\x1b]0;x\x07")
    print("b\x9b", file=sys.stderr, flush=True)
    assert out.getvalue() == "a␛]0;x␇\n"
    assert err.buffer.getvalue() == b"b\\ufffd\n"
    assert drawn() is first.drawn
    monkeypatch.setattr(sys, "stdout", out)
    assert drawn().under is out


def test_a_stream_that_is_not_there_stays_so(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    show_only()
    assert sys.stdout is None


@pytest.mark.parametrize("terminal", [True, False])
def test_a_stream_says_what_is_under_it(terminal):
    under = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")
    under.isatty = lambda: terminal
    stream = VisibleStream(under)
    assert (stream.isatty(), stream.encoding, stream.errors, stream.writable()) == (
        terminal,
        "utf-8",
        "replace",
        True,
    )
