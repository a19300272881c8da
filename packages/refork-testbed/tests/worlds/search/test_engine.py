"""The index, snippets and how answers are compared."""

import pytest

from refork.errors import BadInput
from refork_methods.simulate.search_text import Call, grade, items_of, normalised, read_action, spans_of
from refork_testbed.worlds.search.engine import Index, Snippets, best_sentence, query_words

PAGES = {
    "velora": (
        "velora lies inland .",
        "velora built a bridge in 1893 .",
        "velora opened a library in 1921 .",
    ),
    "mirholm": ("mirholm lies near velora .", "mirholm built a bridge in 1700 ."),
    "bridge": ("a bridge crosses water .",),
}


@pytest.fixture(scope="module")
def index():
    return Index(PAGES, "test")


def test_pages_with_all_words_come_before_any(index):
    assert index.search("velora library") == ("velora",)
    assert index.search("nowhere velora") == ("velora", "mirholm")
    # "bridges" is "bridge" by its stem; the page of that title is first, then by BM25, then by title.
    assert set(index.search("when was a bridge built")) == {"velora", "mirholm"}
    assert len(index.search("bridges")) == 3
    assert index.search("bridge")[0] == "bridge"
    assert index.search("zzz") == index.search("") == index.search('"(') == ()
    assert index.search("velora OR bridge") == index.search("velora bridge or")


def test_the_order_of_pages_changes_nothing(index):
    other = Index(dict(reversed(PAGES.items())), "test")
    for query in ("velora", "bridge", "in year lies", "mirholm velora"):
        assert other.search(query) == index.search(query)


def test_rich_snippets_hold_what_was_asked_and_teasers_do_not():
    page = PAGES["velora"]
    for query, year in (("velora bridge", "1893"), ("in which year did velora open a library", "1921")):
        assert year in Snippets(1.0).of("velora", page, query, "w")
        assert year not in Snippets(0.0).of("velora", page, query, "w")
    assert Snippets(1.0, 3).of("velora", page, "velora bridge", "w") == "... in 1893 ."
    assert Snippets(0.0, 3).of("velora", page, "velora bridge", "w") == "... in 1921 ."
    assert Snippets(1.0, 30).of("velora", page, "velora", "w") == page[0]
    assert best_sentence("velora", page, "velora") == 0
    assert Snippets().of("empty", (), "q", "w") == "..."


def test_a_share_of_pages_is_rich_whatever_the_query():
    page = PAGES["velora"]
    rich = []
    for number in range(600):
        shown = ["1893" in Snippets(0.2).of("velora", page, q, str(number)) for q in ("bridge", "a bridge")]
        assert shown[0] == shown[1]
        rich.append(shown[0])
    # 600 coins of 0.2: outside +-0.065 once in 15,000 seeds.
    assert 0.135 < sum(rich) / 600 < 0.265


def test_query_words():
    assert query_words("In which year did Velora build it?") == ["year", "velora", "build"]
    assert query_words("the of the") == ["the", "of"]


@pytest.mark.parametrize(
    ("turn", "call"),
    [
        ("search: Velora  bridge", Call("search", "Velora bridge")),
        ("search: velora ; page 3", Call("search", "velora", 3)),
        ("<think>search: no</think>I look.\nOpen: 2", Call("open", "2")),
        ("so\n```\nanswer: a ;\nb\n```\nbye", Call("answer", "a ;\nb")),
        ("search: a\nopen: b", Call("open", "b")),
        ("search:", Call("search", "")),
        ("look around", None),
        ("", None),
    ],
)
def test_what_turns_say(turn, call):
    assert read_action(turn) == call


def test_answers_are_compared_as_sets_of_normalised_items():
    assert normalised("The  Café, O'Neill") == "the cafe o neill"
    assert items_of("A ; b;; a\nC") == ("a", "b", "c")
    assert grade("1,893.0", ["1893"]).accepted
    assert grade("b ; a", ["A", "B"]).verdict == "accepted : 2 right , 0 wrong , 0 missing"
    half = grade("a ; x", ["a", "b", "c"])
    assert (half.right, half.wrong, half.missing, half.f1) == (1, 1, 2, pytest.approx(2 / 5))
    assert not half.accepted
    assert half.verdict.startswith("rejected")
    assert grade("", ["a"]).f1 == 0.0


def test_items_are_found_as_whole_words():
    assert spans_of("in 1893 , 18930 and 1,893", "1893") == [(3, 7), (20, 25)]
    assert spans_of("Anna and Ann", "ann") == [(9, 12)]
    assert spans_of("mira  O-Berg", "mira o berg") == [(0, 12)]
    assert spans_of("anything", "...") == []


@pytest.mark.parametrize("bad", [{"rich": -0.1}, {"rich": 1.1}, {"words": -1}])
def test_snippets_that_cannot_be(bad):
    with pytest.raises(BadInput):
        Snippets(**bad)
