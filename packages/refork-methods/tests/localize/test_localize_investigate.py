"""The investigator without a model, and its evidence one kind at a time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.localize.baseline import BEST_FUNCTIONS, FileBm25, FunctionBm25, random_acc
from refork_methods.localize.bm25f import Bm25f, grouped, picked, term_scores
from refork_methods.localize.casefile import CaseFile, case_markdown, case_problems
from refork_methods.localize.commits import fix_commits, score_commits
from refork_methods.localize.gold import Gold
from refork_methods.localize.history import Commit, History, read_history
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.investigate import function_order, investigate
from refork_methods.localize.metrics import score_locations
from refork_methods.localize.on_repository import localize_path, read_issue
from refork_methods.localize.ranking import is_test, rank_symbols, shares_of
from refork_methods.localize.settings import InvestigateSettings, Weights
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.spans import choose_lines, mechanics, own_lines, parsed
from refork_methods.localize.spectrum import Spectrum, read_coverage, spectrum
from refork_methods.localize.terms import issue_terms

FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": '''"""The cart of a shop."""

from shop.rates import discount


def cart_total(items, coupon=None):
    """The sum of a cart in cents."""
    total = sum(price * count for price, count in items)
    return total - discount(total, coupon)
''',
    "shop/rates.py": '''"""What coupons are worth."""


def discount(total, coupon):
    """Cents that a coupon takes off: ten percent above a hundred euros."""
    if coupon is None:
        return 0
    if total > 10000:
        return total // 10
    return 0


def shipping(weight):
    """Cents for a parcel by its weight."""
    if weight < 0:
        raise ValueError("a parcel cannot float away")
    return 490 if weight < 2000 else 690
''',
    "shop/stock.py": '''"""What is in stock."""


def count_left(stock, name):
    """How many pieces are left."""
    return stock.get(name, 0)
''',
    "tests/test_cart.py": """from shop.cart import cart_total


def test_no_coupon():
    assert cart_total([(500, 2)]) == 1000
""",
}
ISSUE = (
    "The coupon is ignored at exactly a hundred euros.\n\n"
    "`cart_total([(10000, 1)], 'TEN')` should take ten percent off."
)
SNAPSHOT = Snapshot.from_files(FILES)


@pytest.fixture(scope="module")
def index() -> RepoIndex:
    return RepoIndex.build(SNAPSHOT)


def test_a_case_is_valid_explained_and_the_same_every_time(index: RepoIndex) -> None:
    case = investigate(index, ISSUE)
    assert case_problems(case, SNAPSHOT) == []
    assert {one.symbol for one in case.locations[:2]} == {"cart_total", "discount"}
    assert case.dumps() == investigate(RepoIndex.build(Snapshot.from_files(FILES)), ISSUE).dumps()
    assert not [one for one in case.locations if one.path.startswith("tests/")]
    rates = next(one for one in case.locations if one.symbol == "discount")
    assert "euros (documentation)" in rates.explanation
    assert rates.root_cause.startswith("Not established")
    assert "lines 6, 8" in rates.root_cause
    assert "should take ten percent off" in rates.solution_idea
    assert ("shop/cart.py", "cart_total") in {(one.path, one.symbol) for one in rates.dependencies}
    assert rates.testing_impact == ("tests/test_cart.py::test_no_coupon calls it; not run",)
    assert [one.confidence for one in case.locations] == [None] * len(case.locations)
    assert case.meta["snapshot"] == SNAPSHOT.digest


def test_no_shared_word_is_an_empty_case(index: RepoIndex) -> None:
    case = investigate(index, "Zygote quux")
    assert (case.status, case.locations) == ("empty", ())
    with pytest.raises(BadInput, match="empty"):
        investigate(index, " \n")


def test_a_stack_trace_decides(index: RepoIndex) -> None:
    log = 'Traceback:\n  File "/x/shop/stock.py", line 6, in count_left\n    return\nKeyError: 1\n'
    case = investigate(index, "The cart breaks.", traceback=log)
    assert case.locations[0].path == "shop/stock.py"
    assert "stack trace goes through line 6 (its deepest frame)" in case.locations[0].explanation


def test_a_quoted_message_is_found(index: RepoIndex) -> None:
    case = investigate(index, 'It says "a parcel cannot float away" at random.')
    assert case.locations[0].symbol == "shipping"
    assert 'holds the quoted text "a parcel cannot float away"' in case.locations[0].explanation


def test_a_named_file_counts(index: RepoIndex) -> None:
    assert investigate(index, "Look into shop/stock.py please").locations[0].path == "shop/stock.py"
    assert investigate(index, "Look into shop.stock.count_left please").locations[0].symbol == "count_left"


def test_a_spectrum_decides(index: RepoIndex) -> None:
    ran = {"bad": [("shop/rates.py", 8), ("shop/cart.py", 9)], "good": [("shop/cart.py", 9)]}
    case = investigate(index, "The cart is wrong.", spectrum=spectrum(ran, ["bad"]))
    assert case.locations[0].symbol == "discount"
    assert "Ochiai 1.00" in case.locations[0].explanation


@pytest.mark.parametrize("root", ["", "/home/me/repo/", "C:/repo/"])
def test_coverage_of_another_folder_is_placed_by_its_tail(index: RepoIndex, root: str) -> None:
    ran = {"bad": [(f"{root}shop/rates.py", 8), (f"{root}shop/cart.py", 9), ("/lib/json.py", 4)]}
    ran["good"] = ran["bad"][1:2]
    case = investigate(index, "The cart is wrong.", spectrum=spectrum(ran, ["bad"]))
    assert case.locations[0].symbol == "discount"
    assert "1 files of the coverage report fit none here, such as /lib/json.py." in case.meta["notes"]
    with pytest.raises(BadInput, match="no file of the coverage report"):
        investigate(index, "The cart is wrong.", spectrum=spectrum({"bad": [("/lib/json.py", 4)]}, ["bad"]))


def test_a_path_that_begins_with_a_dot_is_named_like_any_other() -> None:
    files = {".github/scripts/check.py": "def check():\n    pass\n", "src/other.py": "def a():\n    pass\n"}
    hidden = RepoIndex.build(Snapshot.from_files(files))
    for said in (
        ".github/scripts/check.py",
        "./.github/scripts/check.py",
        "../repo/.github/scripts/check.py",
    ):
        case = investigate(hidden, f"It fails in {said} when run.")
        assert case.locations[0].path == ".github/scripts/check.py"


def test_history_is_a_weak_prior(index: RepoIndex) -> None:
    history = History(
        "c", (Commit("c", 2, "Pieces in stock", ("shop/stock.py",)), Commit("b", 1, "x", ("shop/cart.py",)))
    )
    bare = rank_symbols(index, issue_terms("pieces"), InvestigateSettings())
    told = rank_symbols(index, issue_terms("pieces"), InvestigateSettings(), history=history)
    stock = index.number("shop/stock.py::count_left")
    weights = Weights()
    assert told.odds[stock] - bare.odds[stock] == pytest.approx(weights.recent + weights.related)


def test_tests_may_be_asked_for(index: RepoIndex) -> None:
    case = investigate(index, "test_no_coupon", settings=InvestigateSettings(tests=True))
    assert case.locations[0].path == "tests/test_cart.py"


def test_bm25f_by_hand(index: RepoIndex) -> None:
    fields = {name: index.postings[name] for name in ("name", "doc")}
    settings = Bm25f({"name": 2.0, "doc": 1.0}, b=0.0, k1=1.5)
    word = np.array([index.words["coupon"]])
    got = term_scores(fields, word, settings)[0]
    count = np.zeros(len(index.symbols))
    for name, weight in (("name", 2.0), ("doc", 1.0)):
        one = fields[name]
        for at in range(one.indptr[word[0]], one.indptr[word[0] + 1]):
            count[one.symbols[at]] += weight * one.counts[at]
    assert count[index.number("tests/test_cart.py::test_no_coupon")] == 2.0
    assert count[index.number("shop/rates.py::discount")] == 1.0
    held = int((count > 0).sum())
    idf = np.log1p((count.size - held + 0.5) / (held + 0.5))
    assert got == pytest.approx(idf * count / (1.5 + count))


def test_bm25f_of_files_is_the_sum_of_their_symbols(index: RepoIndex) -> None:
    groups = np.array([FILES_ORDER.index(symbol.path) for symbol in index.symbols])
    whole = grouped(index.postings["body"], groups, len(FILES_ORDER))
    assert whole.lengths.sum() == index.postings["body"].lengths.sum()
    at = index.words["coupon"]
    held = slice(whole.indptr[at], whole.indptr[at + 1])
    assert dict(zip(whole.symbols[held].tolist(), whole.counts[held].tolist(), strict=True)) == {
        FILES_ORDER.index("shop/cart.py"): 1,
        FILES_ORDER.index("shop/rates.py"): 1,
    }


FILES_ORDER = sorted(FILES)


@pytest.mark.parametrize(
    "bad", [{"weights": {}}, {"weights": {"a": -1.0}}, {"weights": {"a": 1.0}, "k1": 0.0}]
)
def test_settings_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Bm25f(**bad)  # type: ignore[arg-type]
    for wrong in (
        {"locations": 0},
        {"per_file": 0},
        {"files": 0},
        {"module": 2.0},
        {"functions": 0},
        {"bodies": -1.0},
    ):
        with pytest.raises(BadInput):
            InvestigateSettings(**wrong)


def test_an_unknown_field_is_refused(index: RepoIndex) -> None:
    with pytest.raises(BadInput, match="no field"):
        term_scores(index.postings, np.array([0]), Bm25f({"nothing": 1.0}))


def test_shares_by_hand() -> None:
    odds, seen = np.log(np.array([1.0, 3.0, 5.0])), np.array([True, True, False])
    assert shares_of(odds, seen) == pytest.approx([0.25, 0.75, 0.0])
    assert not shares_of(odds, seen & False).any()


def test_only_source_is_named_and_counted() -> None:
    issue = "The parcel weight limit is wrong: `parcel_weight` should be checked in grams"
    code = {"shop/post.py": "def parcel_weight(grams):\n    return grams > 2000\n", "shop/cart.py": "x = 1\n"}
    prose = dict.fromkeys(("CHANGES.rst", "docs/post.md", "poetry.lock", "tests/test_post.py"), 9 * issue)
    bare = investigate(RepoIndex.build(Snapshot.from_files(code)), issue)
    index = RepoIndex.build(Snapshot.from_files(code | prose))
    told = investigate(index, issue)
    assert told.files == ("shop/post.py",)
    # What else lies in the repository changes no score: rarity and length are of source files alone.
    assert [(one.path, one.score) for one in told.locations] == [
        (one.path, one.score) for one in bare.locations
    ]
    asked = rank_symbols(index, issue_terms(issue), InvestigateSettings(tests=True))
    assert asked.total[index.number("tests/test_post.py::")] > 0
    # Where there is no source, prose is all that can be named.
    assert set(investigate(RepoIndex.build(Snapshot.from_files(prose)), issue).files) == set(prose)


def test_picked_counts_are_those_of_a_smaller_index(index: RepoIndex) -> None:
    kept = np.flatnonzero([symbol.path != "shop/rates.py" for symbol in index.symbols])
    rest = {path: text for path, text in FILES.items() if path != "shop/rates.py"}
    small = RepoIndex.build(Snapshot.from_files(rest))
    for name, postings in index.postings.items():
        found, wanted = picked(postings, kept), small.postings[name]
        assert found.lengths.tolist() == wanted.lengths.tolist()
        for word, number in index.words.items():
            symbols, counts = found.of(number)
            if word in small.words:
                expected = wanted.of(small.words[word])
                assert (symbols.tolist(), counts.tolist()) == tuple(one.tolist() for one in expected)
            else:
                assert not symbols.size


def test_a_few_files_are_named_and_more_are_listed() -> None:
    many = "".join(f"def parcel_{n}(weight):\n    return weight\n\n\n" for n in range(9))
    files = {"a.py": many, "b.py": "def parcel():\n    return 1\n"}
    files |= {f"c{n}.py": "def other():\n    parcel = 1\n" for n in range(9)}
    index = RepoIndex.build(Snapshot.from_files(files))
    case = investigate(index, "The weight of a parcel is wrong")
    assert [one.path for one in case.locations].count("a.py") == 3
    assert len(case.locations) == 5
    assert case.files[:2] == ("a.py", "b.py")
    assert len(case.files) == 10
    assert set(case.paths) < set(case.files)
    assert f"## Further files\n\n- `{case.files[len(case.paths)]}`" in case_markdown(case)
    # A fixed file that is listed behind the places counts among the ten.
    scores = score_locations(case, Gold((), (case.files[-1],)))
    assert (scores.acc[5], scores.acc[10]) == (0.0, 1.0)


def test_functions_stand_by_their_share_times_a_power_of_bm25() -> None:
    files = {
        "box.py": "def parcel(weight):\n    return 1\n\n\ndef fold():\n    return 2\n",
        "post.py": "class Post:\n    def weigh(self, parcel):\n        return parcel.weight\n",
    }
    index = RepoIndex.build(Snapshot.from_files(files))
    terms = issue_terms("The weight of a parcel is wrong")
    settings = InvestigateSettings()
    ranking = rank_symbols(index, terms, settings)
    bodies = FunctionBm25(index, **BEST_FUNCTIONS).scores(terms.text, cleaned=True)
    best = max(bodies.values())
    by_hand = {
        one: ranking.total[index.number(one)] * (score / best + 0.05) ** 5 for one, score in bodies.items()
    }
    order = [index.symbols[n].id for n in function_order(index, ranking, terms, settings)]
    assert order == sorted(order, key=lambda one: -by_hand[one])
    # Its file shares words with the issue, so it is named, last; a class is no function.
    assert order[-1] == "box.py::fold"
    assert set(order) == {"box.py::parcel", "box.py::fold", "post.py::Post.weigh"}
    # Without the power it is the order of shares.
    plain = function_order(index, ranking, terms, InvestigateSettings(bodies=0.0))
    assert plain == sorted(plain, key=lambda n: -ranking.total[n])
    bare = RepoIndex.build(Snapshot.from_files({"a.py": "parcel = 1\n"}))
    assert function_order(bare, rank_symbols(bare, terms, settings), terms, settings) == []


def test_a_case_lists_functions_of_one_file_beyond_its_places() -> None:
    many = "".join(f"def parcel_{n}(weight):\n    return weight\n\n\n" for n in range(12))
    twice = "class Box:\n" + 2 * "    def parcel(self):\n        return 1\n\n"
    index = RepoIndex.build(Snapshot.from_files({"a.py": many, "b.py": twice}))
    case = investigate(index, "The weight of a parcel is wrong")
    assert len(case.functions) == 10
    assert [path for path, _ in case.functions].count("a.py") > 3
    assert f"## Functions\n\n- `a.py`, `{case.functions[0][1]}`" in case_markdown(case)
    assert CaseFile.loads(case.dumps()).functions == case.functions
    wide = investigate(index, "The weight of a parcel is wrong", settings=InvestigateSettings(functions=99))
    # A name that is bound twice stands once.
    assert wide.functions.count(("b.py", "Box.parcel")) == 1
    # A case of another maker has those of its places.
    bare = CaseFile(case.locations)
    places = [(one.path, one.symbol) for one in case.locations if one.symbol is not None]
    assert bare.functions == tuple(dict.fromkeys(places))
    assert "## Functions" not in case_markdown(bare)


def test_spans() -> None:
    assert choose_lines(5, 20, np.ones(16), 80, 60) == (5, 20)
    mass = np.zeros(100)
    mass[70] = 1
    start, end = choose_lines(1, 100, mass, 80, 20)
    assert start <= 71 <= end
    assert end - start == 19
    assert choose_lines(1, 100, np.zeros(100), 80, 20) == (1, 20)
    assert own_lines(1, 10, [(3, 4), (4, 6)]) == [(1, 2), (7, 10)]
    assert own_lines(3, 4, [(3, 4)]) == []


def test_mechanics_by_tree_and_by_line() -> None:
    source = "def f(x):\n    if x:\n        return 1\n    for y in x:\n        yield y\n"
    for tree in (parsed(source, "a.py"), None):
        found = mechanics(source.splitlines(), 1, tree)
        assert (found.decides, found.gives) == ((2, 4), (3, 5))
    assert parsed("def f(:", "a.py") is None
    assert parsed("x = 1", "a.js") is None


@pytest.mark.parametrize(
    "path", ["tests/a.py", "a/test_b.py", "b_test.go", "src/x.spec.ts", "ThingTest.java", "conftest.py"]
)
def test_test_files_are_known(path: str) -> None:
    assert is_test(path)
    assert not is_test("src/contest.py")
    assert not is_test("latest/attest.py")


def test_ochiai_by_hand() -> None:
    found = spectrum({"a": [("f", 1), ("f", 2)], "b": [("f", 1)], "c": [("f", 1), ("f", 3)]}, ["a"]).ochiai()
    assert found == {("f", 1): pytest.approx(1 / np.sqrt(3)), ("f", 2): 1.0}
    with pytest.raises(BadInput):
        Spectrum({}, frozenset())
    with pytest.raises(BadInput):
        spectrum({"a": []}, ["b"])


def test_coverage_reports(tmp_path: Path) -> None:
    body = {"files": {"a.py": {"contexts": {"1": ["", "t.py::x|run", "t.py::y|run"], "2": ["t.py::x|call"]}}}}
    file = tmp_path / "coverage.json"
    file.write_text(json.dumps(body))
    assert read_coverage(file, ["x"]).ochiai() == {("a.py", 1): pytest.approx(0.5**0.5), ("a.py", 2): 1.0}
    with pytest.raises(BadInput, match="fits 0"):
        read_coverage(file, ["z"])
    bad: tuple[dict[str, object], ...] = ({}, {"files": {"a.py": {}}})
    for broken in bad:
        file.write_text(json.dumps(broken))
        with pytest.raises(BadInput):
            read_coverage(file, ["x"])


def test_baselines() -> None:
    assert FileBm25(SNAPSHOT).ranked("parcel weight")[0] == "shop/rates.py"
    assert FileBm25(SNAPSHOT).ranked("zygote") == list(SNAPSHOT.files)
    assert random_acc(10) == pytest.approx(0.1)
    assert random_acc(4, 2) == 0.0


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repo")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "A shop")
    rates = root / "shop/rates.py"
    rates.write_text(FILES["shop/rates.py"].replace("total > 10000", "total >= 10000"))
    git(root, "commit", "-qam", "Fix the coupon that discount() ignored at a hundred euros")
    rates.write_text(rates.read_text() + "\n\nLIMIT_OF_A_PARCEL_IN_GRAMS = 31500\n")
    git(root, "commit", "-qam", "Fix: LIMIT_OF_A_PARCEL_IN_GRAMS = 31500")
    (root / "shop/stock.py").write_text("x = 1\n")
    git(root, "commit", "-qam", "Stock is a constant")
    return root


def test_history_ends_at_its_base(repo: Path) -> None:
    whole = read_history(repo)
    assert [one.subject for one in whole.commits][-1] == "A shop"
    assert len(whole.commits) == 4
    early = read_history(repo, "HEAD~2")
    assert [one.id for one in early.commits] == [one.id for one in whole.commits[2:]]
    assert early.commits[0].paths == ("shop/rates.py",)
    assert early.recency(1.0)["shop/rates.py"] == 1.5
    assert early.recency(1.0)["shop/cart.py"] == 0.5
    assert list(whole.related({"stock": 1.0})) == ["shop/stock.py"]
    with pytest.raises(BadInput):
        read_history(repo, "nowhere")
    with pytest.raises(BadInput):
        read_history(repo, "--all")


def test_history_is_read_whatever_a_message_holds(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for message in ("first \x1e odd", "\x1f\n\nfix: two\x1e\x1f"):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a/x.py").write_text(f"x = {message!r}\n")
        (tmp_path / "b.py").write_text(f"y = {message!r}\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", message)
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "nothing")
    git(tmp_path, "commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    found = read_history(tmp_path).commits
    assert [one.paths for one in found] == [(), (), ("a/x.py", "b.py"), ("a/x.py", "b.py")]
    assert [one.message.strip("\n") for one in found[1:]] == [
        "nothing", "\x1f\n\nfix: two\x1e\x1f", "first \x1e odd",
    ]  # fmt: skip
    assert localize_path(tmp_path, "x is first, it should be second").case.locations
    # A diff is read by its prefixes, which a user may have switched off.
    git(tmp_path, "config", "diff.noprefix", "true")
    assert next(fix_commits(tmp_path)).gold.files == ("a/x.py", "b.py")


def test_fixes_are_told_by_their_message(repo: Path) -> None:
    assert [task.commit.subject[:7] for task in fix_commits(repo)] == ["Fix: LI", "Fix the"]
    assert len(list(fix_commits(repo, every=True))) == 3  # the first commit has no parent


def test_scoring_a_repository(repo: Path) -> None:
    found = score_commits(repo, 5)
    assert [row.subject for row in found.rows] == [
        "Fix the coupon that discount() ignored at a hundred euros"
    ]
    assert list(found.skipped.values()) == [
        "the issue's text contains a line that the fix adds: LIMIT_OF_A_PARCEL_IN_GRAMS = 31500"
    ]
    row = found.rows[0]
    assert (row.scores.acc[1], row.scores.chunk_recall, row.bm25, row.files) == (
        1.0,
        1.0,
        {"shop/rates.py": 1},
        4,
    )
    assert json.dumps(found.to_json())
    masked = score_commits(repo, 5, masked=True)
    assert "discount" not in masked.rows[0].issue
    assert "coupon" in masked.rows[0].issue


def test_scoring_needs_a_fix(repo: Path) -> None:
    with pytest.raises(BadInput, match="no commit"):
        score_commits(repo, 5, base="HEAD~3")
    with pytest.raises(BadInput, match="at least one"):
        score_commits(repo, 0)


def test_a_dirty_tree_needs_a_flag(repo: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "-q", str(repo), str(copy)], check=True, capture_output=True)
    assert localize_path(copy, ISSUE).case.locations
    (copy / "shop/new.py").write_text("x = 1\n")
    with pytest.raises(BadInput, match="uncommitted changes"):
        localize_path(copy, ISSUE)
    assert localize_path(copy, ISSUE, allow_dirty=True).case.meta["notes"][-1].endswith("in 1 files.")
    assert localize_path(copy, ISSUE, commit="HEAD").case.locations


def test_a_diff_in_the_issue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(BadInput, match="contains a diff"):
        localize_path(tmp_path, "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
    with pytest.raises(BadInput, match="go together"):
        localize_path(tmp_path, "x", failed=["t"])


def test_issues_may_be_rows() -> None:
    assert read_issue("text", "a.md") == "text"
    assert read_issue('{"instance_id": "a", "problem_statement": "p"}', "a.json") == "p"
    for text in ("{}", '{"problem_statement": 3}', '{"problem_statement": "p"}\n{"problem_statement": "q"}'):
        with pytest.raises(BadInput):
            read_issue(text, "a.jsonl")
