from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from refork_methods.localize.facts import Span
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools, hits, matching

FILES: dict[str, str | bytes] = {
    "pkg/__init__.py": "from pkg.core import Engine\n",
    "pkg/core.py": '"""Engine."""\nimport pkg.util\n\n\nclass Engine:\n    def run(self):\n'
    "        return pkg.util.go()\n",
    "pkg/util.py": "def go():\n    return 1\n",
    "docs/guide.md": "# Guide\nThe Engine runs.\n",
    "tests/test_core.py": "from pkg import Engine\n",
    "data/deep/er/still/x.txt": "Engine\nengine\n",
}

ODD: dict[str, bytes] = {
    "crlf.py": b"a = 1\r\nb = 2\r\n",
    "mixed.py": b"a = 1\r\nb = 2\nc\n",
    "unended.py": b"a = 1\nb = 2",
    "unended_crlf.py": b"a = 1\r\nb = 2",
    "mark.py": b"\xef\xbb\xbfa = 1\n",
    "latin.py": b"name = 'caf\xe9'\n# \x80\x93\n",
    "tabs.txt": b"\ta\tb\n1\t2\n\n\t\n",
    "returns.txt": b"a\rb\n\x0c\nx\x85y\xe2\x80\xa8z\n",
    "one.txt": b"\n",
    "dashes.txt": b"--\n\\ no newline at the end of the file\n",
    "dashes2.txt": b"--\n\\ no newline at the end of the file",
}


def viewed(text: str) -> str:
    """The file's own text that a view shows: its inverse, for lines that are shown whole."""
    kept = text.split("\n", 1)[1].split("\n")
    if kept[-2:] == ["\\ no newline at the end of the file", ""]:
        kept = kept[:-2]
        return "\n".join(line.split("\t", 1)[1] for line in kept)
    return "".join(line.split("\t", 1)[1] + "\n" for line in kept[:-1])


@pytest.fixture(scope="module")
def tools() -> RepoTools:
    return RepoTools(Snapshot.from_files(FILES))


@pytest.mark.parametrize("name", sorted(ODD))
def test_view_round_trips_bytes(name: str) -> None:
    snapshot = Snapshot.from_files(ODD)
    answer = RepoTools(snapshot).view_file(name)
    assert viewed(answer.text).encode(snapshot.encoding(name)) == ODD[name]
    assert answer.spans == (Span(name, 1, snapshot.length(name)),)


def test_view_round_trips_random_bytes() -> None:
    random_bytes = random.Random(3)
    for _ in range(200):
        raw = bytes(
            random_bytes.choice(b"ab \t\r\n\n\xe9\xc3\xa9\\") for _ in range(random_bytes.randrange(1, 60))
        )
        snapshot = Snapshot.from_files({"x": raw})
        answer = RepoTools(snapshot).view_file("x")
        assert viewed(answer.text).encode(snapshot.encoding("x")) == raw


def test_view_says_what_the_bytes_are() -> None:
    tools = RepoTools(Snapshot.from_files(ODD))
    assert "lines end with CRLF" in tools.view_file("crlf.py").text
    assert "1 lines end with CRLF" in tools.view_file("mixed.py").text
    assert "byte order mark" in tools.view_file("mark.py").text
    assert "read as latin-1" in tools.view_file("latin.py").text
    assert "no newline at the end" in tools.view_file("unended.py").text


def test_view_is_bounded_and_states_the_total() -> None:
    tools = RepoTools(
        Snapshot.from_files({"long.py": "".join(f"x{i} = {i}\n" for i in range(1, 1001)), "e": ""})
    )
    first = tools.view_file("long.py")
    assert (first.spans, first.cut) == ((Span("long.py", 1, 250),), 750)
    assert first.text.startswith("long.py: lines 1-250 of 1000\n")
    asked = tools.view_file("long.py", 300, 900)
    assert (asked.spans, asked.cut) == ((Span("long.py", 300, 549),), 351)
    last = tools.view_file("long.py", 990, 5000)
    assert (last.spans, last.cut) == ((Span("long.py", 990, 1000),), 0)
    assert tools.view_file("long.py", 7, 7).text.endswith("     7\tx7 = 7\n")
    assert "empty" in tools.view_file("e").text
    for start, end in ((0, 5), (9, 3), (1001, None), (-1, None)):
        assert tools.view_file("long.py", start, end).error


def test_a_view_of_generated_code_is_bounded_too() -> None:
    answer = RepoTools(Snapshot.from_files({"min.js": "x" * 500_000 + "\n"})).view_file("min.js")
    assert len(answer.text) < 5000
    assert "496,000 more characters" in answer.text


def scan(files: dict[str, str | bytes], text: str) -> list[tuple[str, int]]:
    """The plain scan: every place of every file, one after the other."""
    found = []
    for path in sorted(files):
        raw = files[path]
        try:
            content = raw if isinstance(raw, str) else raw.decode("utf-8")
        except UnicodeDecodeError:
            content = raw.decode("latin-1")  # type: ignore[union-attr]
        lines = {content[:at].count("\n") + 1 for at in range(len(content)) if content.startswith(text, at)}
        found += [(path, line) for line in sorted(lines)]
    return found


@pytest.mark.parametrize(
    "text", ["Engine", "e", "pkg.util", "\n", "def go():\n    return", "é", " ", "zzz", "a.*b", "\r"]
)
def test_search_equals_a_plain_scan(text: str) -> None:
    files = {**FILES, **ODD}
    assert hits(Snapshot.from_files(files), text) == scan(files, text)


def test_search_equals_a_plain_scan_on_random_texts() -> None:
    draw = random.Random(5)
    for _ in range(150):
        files: dict[str, str | bytes] = {
            f"f{i}": "".join(draw.choice("ab\n") for _ in range(draw.randrange(40))) for i in range(3)
        }
        text = "".join(draw.choice("ab\n") for _ in range(draw.randrange(1, 4)))
        assert hits(Snapshot.from_files(files), text) == scan(files, text)


def test_search_shows_context_and_says_what_it_cuts() -> None:
    text = "".join(f"needle {i}\n" if i % 4 == 0 else f"hay {i}\n" for i in range(1, 401))
    tools = RepoTools(Snapshot.from_files({"a.txt": text, "b.txt": "needle\n"}))
    answer = tools.search("needle", max_hits=10)
    assert answer.cut == 91
    assert "101 hits in 2 files" in answer.text
    assert "91 more hits not shown" in answer.text
    assert answer.spans[0] == Span("a.txt", 3, 5)
    assert len(answer.spans) == 10
    assert "a.txt:4: needle 4\n" in answer.text
    assert "a.txt:3- hay 3\n" in answer.text
    assert all(first.end < second.start for first, second in pairwise(answer.spans))
    assert tools.search("needle", max_hits=10_000).cut == 0
    assert tools.search("needle", path_glob="b.txt").spans == (Span("b.txt", 1, 1),)
    assert (
        tools.search("NEEDLE").text
        == "no line holds 'NEEDLE'; 101 places would if capitals were no difference"
    )
    assert tools.search("").error
    assert tools.search("x", max_hits=0).error


def test_search_evidence_is_what_is_printed(tools: RepoTools) -> None:
    answer = tools.search("Engine")
    printed = set()
    for line in answer.text.splitlines()[1:]:
        if line != "--":
            place = line.split(" ", 1)[0].rstrip(":-")
            printed.add((place.rsplit(":", 1)[0], int(place.rsplit(":", 1)[1])))
    shown = {(span.path, line) for span in answer.spans for line in range(span.start, span.end + 1)}
    assert printed == shown


@pytest.mark.parametrize(
    ("glob", "fits"),
    [
        ("*.md", ["docs/guide.md"]),
        ("pkg/*", ["pkg/__init__.py", "pkg/core.py", "pkg/util.py"]),
        ("**/*.txt", ["data/deep/er/still/x.txt"]),
        ("data/**", ["data/deep/er/still/x.txt"]),
        ("pkg/**/*.py", ["pkg/__init__.py", "pkg/core.py", "pkg/util.py"]),
        ("pkg/[cu]*.py", ["pkg/core.py", "pkg/util.py"]),
        ("pkg/[!c]*.py", ["pkg/__init__.py", "pkg/util.py"]),
        ("?ests/*", ["tests/test_core.py"]),
        ("./pkg/core.py", ["pkg/core.py"]),
    ],
)
def test_globs(glob: str, fits: list[str]) -> None:
    assert matching(tuple(sorted(FILES)), glob) == fits


def test_a_glob_that_fits_nothing_says_so(tools: RepoTools) -> None:
    assert "no file fits" in str(tools.search("Engine", "*.rs").error)
    assert tools.search("Engine", "../*").error


def test_tree_folds_with_counts(tools: RepoTools) -> None:
    assert tools.tree(".", 1).text == (
        "./ (6 files, 7 folders)\n  data/ (1 file, 3 folders)\n  docs/ (1 file)\n  pkg/ (3 files)\n"
        "  tests/ (1 file)\n"
    )
    assert tools.tree("pkg").text == (
        "pkg/ (3 files)\n  __init__.py (1 line)\n  core.py (7 lines)\n  util.py (2 lines)\n"
    )
    assert "did you mean docs" in str(tools.tree("dcs").error)
    assert "is a file" in str(tools.tree("pkg/core.py").error)
    assert tools.tree(".", 0).error
    wide = RepoTools(Snapshot.from_files({f"f{i:04}.txt": "x\n" for i in range(1000)})).tree()
    assert wide.cut == 600
    assert "600 more entries" in wide.text


def test_connected_says_lines_and_names(tools: RepoTools) -> None:
    told = tools.connected("pkg/core.py").text
    assert told == (
        "pkg/core.py: 1 imported, 1 importing, within 1 hop\n"
        "imports:\n  pkg/util.py (line 2)\n"
        "imported by:\n  pkg/__init__.py (line 1: Engine)\n"
    )
    assert "tests/test_core.py (2 hops)" in tools.connected("pkg/core.py", hops=2).text
    assert tools.connected("pkg/core.py", hops=9).error
    assert "not read" in tools.connected("docs/guide.md").text


def test_outputs_are_the_same_on_two_runs() -> None:
    def answers() -> list[str]:
        shuffled = list({**FILES, **ODD}.items())
        random.Random(len(runs)).shuffle(shuffled)
        tools = RepoTools(Snapshot.from_files(dict(shuffled)))
        asked = [
            tools.tree(".", 9),
            tools.search("e"),
            tools.connected("pkg/core.py", 3),
        ]
        asked += [tools.view_file(path) for path in tools.snapshot.files]
        return [repr(answer) for answer in asked]

    runs: list[list[str]] = []
    for _ in range(2):
        runs.append(answers())
    assert runs[0] == runs[1]


def test_call_takes_what_the_schemas_say(tools: RepoTools) -> None:
    schemas = {one["function"]["name"]: one["function"]["parameters"] for one in tools.schemas()}
    assert set(schemas) == {"view_file", "search", "tree", "connected"}
    json.dumps(tools.schemas())
    assert tools.call("view_file", {"path": "pkg/util.py", "end": None}) == tools.view_file("pkg/util.py")
    assert tools.call("search", {"text": "Engine", "max_hits": 1}) == tools.search("Engine", max_hits=1)
    assert tools.call("tree", {}) == tools.tree()
    for name, arguments in [
        ("open", {}),
        ("view_file", {}),
        ("view_file", {"path": 3}),
        ("view_file", {"path": "pkg/util.py", "line": 1}),
        ("view_file", {"path": "pkg/util.py", "start": "1"}),
        ("view_file", {"path": "pkg/util.py", "start": True}),
        ("view_file", {"path": "pkg/util.py", "start": 0}),
        ("search", {"text": None}),
        ("tree", {"depth": 1.5}),
        ("__init__", {"root": "/"}),
        ("index", {}),
        ("call", {"name": "tree", "arguments": {}}),
    ]:
        answer = tools.call(name, arguments)
        assert answer.error, (name, arguments)
        assert answer.text.startswith("error: ")
