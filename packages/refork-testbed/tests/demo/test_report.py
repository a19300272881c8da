import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from refork.errors import BadInput
from refork.report.data import Cliff, EffectData, Gain, RateData, Token, Trace, TraceStep
from refork_testbed.demo.data import CurvePoint, ReportData, Stage, TreeData, TreeNode
from refork_testbed.demo.page import curve_sentence, render

EVIL = "<script>alert('x')</script>\"&\u202e\x1b]0;\x07"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Headings, ids, tags and text of a page; fails where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.ids, self.tags, self.links = [], [], set(), set(), []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        self.ids.add(attributes.get("id"))
        self.links += [attributes[k] for k in ("href", "src") if k in attributes]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append([tag, ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.headings and self.open and self.open[-1] == self.headings[-1][0]:
            self.headings[-1][1] += data.strip()


def minimal(**more):
    return ReportData(title="t", command="refork demo", world="maze", **more)


def test_sections_stand_in_order_under_real_headings(report):
    page = Page(render(report))
    assert [text.replace("\u00a0", " ") for _, text in page.headings] == [
        "Held-out success rose from 31 % to 61 %",
        "In one minute",
        "Success over training",
        "One task, many runs",
        "Where the failed run was lost",
        "What one change does",
        "How it was done",
        "What it was made with",
        "Policy",
        "Settings",
        "Versions",
    ]
    assert [h[0] for h in page.headings].count("h1") == 1
    assert {"headline", "curve", "tree", "trace", "effect", "how"} <= page.ids


def test_the_page_asks_nothing_of_any_network(report):
    text = render(report)
    page = Page(text)
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form"})
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(|@import", text)


def test_every_picture_is_named_and_has_a_table_beside_it(report):
    text = render(report)
    assert len(re.findall("<svg ", text)) == len(re.findall('role="img" aria-label="[^"]+"', text))
    assert text.count("<table>") == text.count("<figure") == 6
    assert "prefers-color-scheme: dark" in text


def evil_report():
    node = TreeNode(id="r", parent=None, kind="task", label=EVIL, success=0.0)
    token = Token(text=EVIL, index=0, value=0.5, low=0.4, high=0.6)
    rate = RateData(rate=0.2, low=0.1, high=0.3)
    return ReportData(
        title=EVIL,
        command=EVIL,
        world=EVIL,
        policy={EVIL: {EVIL: EVIL}},
        settings={"a": EVIL},
        versions={"b": EVIL},
        curve=(CurvePoint(update=0, success=0.5, note=EVIL),),
        before=rate,
        after=rate,
        gain=Gain(difference=0.0, low=-0.1, high=0.1, method=EVIL),
        tree=TreeData(task=EVIL, nodes=(node,)),
        trace=Trace(
            steps=(
                TraceStep(kind="task", text=EVIL * 40),
                TraceStep(kind="action", text=EVIL, tokens=(token,)),
            ),
            cliff=Cliff(token_index=0, text=EVIL, before=0.5, after=0.1),
        ),
        effect=EffectData(
            what=EVIL, before_text=EVIL, after_text=EVIL, score=EVIL, base=rate, other=rate, method=EVIL
        ),
        stages=(Stage(title=EVIL, detail=EVIL, seconds=1.0),),
        code=EVIL,
    )


def test_text_of_models_can_not_act_on_the_page():
    text = render(evil_report())
    page = Page(text)
    assert "script" not in page.tags
    assert "<script" not in text.lower()
    assert not re.search("[\u202e\x1b\x07]", text)
    assert text.count("&lt;script&gt;") > 15


def test_surrogates_of_broken_tokens_still_make_utf8():
    data = minimal(
        trace=Trace(steps=(TraceStep(kind="action", text="", tokens=(Token(text="\udc80", index=0),)),))
    )
    assert render(data).encode().decode().startswith("<!doctype html>")


def test_what_was_never_computed_is_a_dash_and_what_is_zero_is_zero():
    text = render(
        minimal(
            effect=EffectData(what="remove", ungraded=0),
            stages=(Stage(title="s"), Stage(title="z", seconds=0.0)),
        )
    )
    pairs = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", text))
    assert pairs["p"] == pairs["Draws per arm"] == pairs["Tokens"] == "–"
    assert pairs["Not graded"] == "0"
    assert [t.replace("\u00a0", " ") for t in re.findall(r'class="time">([^<]*)<', text)] == ["–", "0.0 s"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"curve": (CurvePoint(update=0),)},
        {"tree": TreeData(task="x")},
        {"trace": Trace()},
        {"before": RateData(), "after": RateData(), "gain": Gain()},
        {"before": RateData(rate=0.5)},
    ],
)
def test_sections_without_figures_are_left_out(more):
    page = Page(render(minimal(**more)))
    assert page.ids.isdisjoint({"curve", "tree", "trace", "effect", "how"})
    assert "svg" not in page.tags
    assert page.headings[0] == ["h1", "t"]


def test_every_link_of_the_summary_leads_somewhere_when_sections_are_missing(report):
    page = Page(render(replace(report, curve=(), trace=None)))
    assert all(link[1:] in page.ids for link in page.links)


def test_a_swept_run_without_a_cliff_says_so(report):
    text = render(replace(report, trace=replace(report.trace, cliff=None)))
    assert "No single token" in text
    assert "The swept run" in text
    assert 'class="flag"' not in text


def test_equal_data_give_equal_bytes(report):
    assert render(report) == render(replace(report))


def test_three_hundred_nodes_make_a_page_of_moderate_size(make_report):
    text = render(make_report(300))
    Page(text)
    assert text.count("<tr") > 300
    assert len(text) < 400_000


def test_what_is_no_tree_is_refused():
    orphan = TreeNode(id="a", parent="b", kind="action", label="x")
    with pytest.raises(BadInput, match="unknown parent"):
        render(minimal(tree=TreeData(nodes=(orphan,))))


def test_means_are_shown_in_their_own_unit():
    arm = RateData(rate=12.5, low=11.0, high=14.0)
    other = RateData(rate=15.0, low=13.0, high=17.0)
    text = render(
        minimal(
            effect=EffectData(
                what="x", score="reward", base=arm, other=other, difference=2.5, low=1.0, high=4.0
            )
        )
    )
    assert "raises reward from 12.5 to 15, +2.5 (95\u00a0% interval +1 to +4)" in text
    assert "points" not in text.split('id="effect"')[1]


def test_curves():
    curve = (CurvePoint(update=0, success=0.3), CurvePoint(update=1), CurvePoint(update=2, success=0.5))
    said = curve_sentence(curve).replace("\u00a0", " ")
    assert said.startswith("From 30 % at update 0 to 50 % at update 2.")
    assert "not measured" in curve_sentence((CurvePoint(update=0),))
