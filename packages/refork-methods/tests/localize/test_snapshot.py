from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from refork.errors import BadInput, CannotDo
from refork_methods.localize.snapshot import Snapshot, near_paths, why_not_path
from refork_methods.localize.tools import RepoTools

#: Ways out of a repository, and what only looks like one.
ESCAPES = [
    "..",
    "../secret.txt",
    "src/../../secret.txt",
    "src/..",
    "./../secret.txt",
    "src/./../../secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "\\etc\\passwd",
    "..\\secret.txt",
    "src\\..\\..\\secret.txt",
    "src\\main.py",
    "C:\\secret.txt",
    "C:/secret.txt",
    "c:secret.txt",
    "\\\\server\\share\\x",
    "file:///etc/passwd",
    "~/secret.txt",
    "~root/secret.txt",
    "~",
    "src/main.py\0.txt",
    "\0",
    "src/main.py\n",
    "src/\x1b[0mmain.py",
    "%2e%2e/secret.txt",
    "..%2fsecret.txt",
    "%252e%252e%252fsecret.txt",
    "%2Fetc%2Fpasswd",
    "．．/secret.txt",
    "‥/secret.txt",
    "..／secret.txt",
    "..∕secret.txt",
    "src⁄main.py",
    ".. /secret.txt",
    "src/\u202e/main.py",
    "src/ma\u200bin.py",
    "src/\ud800.py",
    ".git/config",
    ".GIT/config",
    ".git./config",
    "src/.git/HEAD",
    "",
    "link_out.txt",
    "link_chain.txt",
    "link_dir/secret.txt",
    "link_abs.txt",
    "loop_a",
    "loop_b",
    "link_git",
    "link_hidden",
    "link_missing",
    "pipe",
    "binary.bin",
    "large.txt",
    "utf16.txt",
    "nested/up.txt",
]


def git(root: Path, *arguments: str) -> str:
    settings = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", "-C", root, *arguments], check=True, capture_output=True, text=True, env=settings
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout beside a secret, with every kind of link towards it."""
    top = tmp_path_factory.mktemp("walled")
    (top / "secret.txt").write_text("SECRET\n")
    root = top / "repo"
    (root / "src").mkdir(parents=True)
    (root / "nested").mkdir()
    (root / "src/main.py").write_text("VALUE = 1\n")
    (root / "hidden.log").write_text("SECRET of the folder\n")
    (root / ".gitignore").write_text("*.log\nbuilt/\n")
    (root / "built").mkdir()
    (root / "built/out.py").write_text("SECRET = 2\n")
    (root / "binary.bin").write_bytes(b"\x7fELF\0SECRET")
    (root / "utf16.txt").write_bytes("SECRET".encode("utf-16"))
    (root / "large.txt").write_bytes(b"SECRET\n" * 300_000)
    links = {
        "link_out.txt": "../secret.txt",
        "link_chain.txt": "link_out.txt",
        "link_dir": "..",
        "loop_a": "loop_b",
        "link_abs.txt": str(top / "secret.txt"),
        "loop_b": "loop_a",
        "link_git": ".git/config",
        "link_hidden": "hidden.log",
        "link_missing": "nothing",
        "nested/up.txt": "../../secret.txt",
        "link_in.py": "src/main.py",
        "nested/also.py": "../link_in.py",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    git(root, "init", "-q")
    return root


@pytest.fixture(scope="module", params=["git", "folder", "commit"])
def tools(
    request: pytest.FixtureRequest, walled: Path, tmp_path_factory: pytest.TempPathFactory
) -> RepoTools:
    if request.param == "git":
        return RepoTools(walled)
    if request.param == "folder":
        moved = walled.with_name("plain")
        if not moved.exists():
            subprocess.run(["cp", "-a", walled, moved], check=True)
            subprocess.run(["rm", "-rf", moved / ".git"], check=True)
            (moved / "hidden.log").unlink()
            subprocess.run(["rm", "-r", moved / "built"], check=True)
        return RepoTools(moved)
    copy = walled.with_name("committed")
    if not copy.exists():
        subprocess.run(["cp", "-a", walled, copy], check=True)
        (copy / "pipe").unlink()
        git(copy, "add", "-A")
        git(copy, "commit", "-q", "-m", "all")
    return RepoTools(Snapshot(copy, commit="HEAD"))


@pytest.mark.parametrize("path", ESCAPES)
def test_every_way_out_is_refused_by_every_tool(tools: RepoTools, path: str) -> None:
    answers = [
        tools.view_file(path),
        tools.connected(path),
        tools.tree(path),
        tools.call("view_file", {"path": path}),
        tools.search("SECRET", path_glob=path),
    ]
    for answer in answers:
        assert answer.error, path
        assert not answer.spans
        assert "SECRET" not in answer.text


def test_nothing_outside_is_found_by_search_or_tree(tools: RepoTools) -> None:
    assert tools.search("SECRET").spans == ()
    told = tools.tree(".", 9).text
    assert "src/" in told
    assert "main.py (1 line)" in told
    assert not any(
        name in told for name in ("secret", "link_out", "loop", "pipe", "hidden", "binary", "large")
    )


def test_links_that_stay_inside_are_files(tools: RepoTools) -> None:
    assert "VALUE = 1" in tools.view_file("link_in.py").text
    assert "VALUE = 1" in tools.view_file("nested/also.py").text


def test_refused_files_say_why(tools: RepoTools) -> None:
    refused = tools.snapshot.refused
    assert refused["binary.bin"] == "a binary file"
    assert refused["large.txt"] == "2,100,000 bytes, more than 2,000,000"
    assert "circle" in refused["loop_a"]
    assert "link" in refused["link_out.txt"]
    assert "link" in refused["nested/up.txt"]


def test_there_are_enough_escapes() -> None:
    assert len(set(ESCAPES)) >= 25
    assert sum(why_not_path(path) is not None for path in ESCAPES) >= 25


@pytest.mark.parametrize("path", ["src/main.py", "./src/main.py", "src//main.py", "src/./main.py"])
def test_the_same_file_by_other_spellings(tools: RepoTools, path: str) -> None:
    assert tools.snapshot.resolve(path) == "src/main.py"


@pytest.mark.parametrize("path", ["SRC/main.py", "src/Main.py", "src/main.py/"])
def test_capitals_are_another_name(tools: RepoTools, path: str) -> None:
    answer = tools.view_file(path)
    if path.endswith("/"):
        assert answer.error is None
    else:
        assert answer.error is not None
        assert "did you mean src/main.py" in answer.error


def test_a_folder_replaced_by_a_link_after_it_was_tracked(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / "data").mkdir(parents=True)
    (root / "keep.py").write_text("A = 1\n")
    (root / "data/passwd").write_text("inside\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/passwd").write_text("SECRET\n")
    (root / "data/passwd").unlink()
    (root / "data").rmdir()
    (root / "data").symlink_to(tmp_path / "out")
    found = Snapshot(root)
    assert "data/passwd" not in found
    assert "link" in found.refused["data/passwd"]


def test_gitignore_and_the_folders_of_a_plain_directory(walled: Path) -> None:
    found = Snapshot(walled)
    assert found.origin == "git"
    assert "hidden.log" not in found
    assert "built/out.py" not in found
    assert ".gitignore" in found


def test_a_plain_folder_skips_caches_and_environments(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "node_modules/x.js",
        ".venv/lib/y.py",
        "pkg/__pycache__/z.py",
        "pkg/b.py",
        "m.egg-info/t.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    found = Snapshot(tmp_path)
    assert found.files == ("a.py", "pkg/b.py")
    assert (found.origin, found.commit, found.dirty) == ("folder", None, None)


def test_dirty_tree_and_base_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.py").write_bytes(b"old = 1\r\n")
    (tmp_path / "b.py").write_text("b = 1\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "one")
    clean = Snapshot(tmp_path)
    head = git(tmp_path, "rev-parse", "HEAD")
    assert (clean.commit, clean.dirty, clean.changed) == (head, False, ())
    (tmp_path / "sub/a.py").write_text("new = 2\n")
    (tmp_path / "c.py").write_text("c = 1\n")
    (tmp_path / "b.py").unlink()
    changed = Snapshot(tmp_path)
    assert changed.dirty is True
    assert changed.changed == ("b.py", "c.py", "sub/a.py")
    assert changed.files == ("c.py", "sub/a.py")
    base = Snapshot(tmp_path, commit="HEAD")
    assert (base.origin, base.commit, base.dirty) == ("commit", head, False)
    assert base.files == ("b.py", "sub/a.py")
    assert base.bytes("sub/a.py") == b"old = 1\r\n"
    assert base.digest == clean.digest != changed.digest
    assert (tmp_path / "sub/a.py").read_text() == "new = 2\n", "the working tree is not touched"
    assert not (tmp_path / "b.py").exists()
    below = Snapshot(tmp_path / "sub", commit=head[:10])
    assert below.files == ("a.py",)
    inner = Snapshot(tmp_path / "sub")
    assert (inner.files, inner.changed) == (("a.py",), ("a.py",))


def test_a_clone_without_some_objects_is_read_without_them(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(f"name = {name!r}\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "one")
    blob = git(tmp_path, "rev-parse", "HEAD:b.py")
    (tmp_path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    found = Snapshot(tmp_path, "HEAD")
    assert found.files == ("a.py",)
    assert found.refused == {"b.py": "an object that this clone does not hold (a partial clone)"}


def test_a_repository_without_a_commit_is_dirty(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("a = 1\n")
    found = Snapshot(tmp_path)
    assert (found.commit, found.dirty) == (None, True)


def test_an_ignored_folder_is_read_as_a_plain_one(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("vendor/\n")
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor/a.py").write_text("a = 1\n")
    found = Snapshot(tmp_path / "vendor")
    assert (found.files, found.origin) == (("a.py",), "folder")
    assert found.note is not None


PROGRAMS = {
    "monitor": {"core.fsmonitor": "HOOK"},
    "filter": {"filter.x.clean": "HOOK"},
    "long-running filter": {"filter.x.process": "HOOK", "filter.x.required": "true"},
    "filter of an odd name": {"filter.a=b.x.clean": "HOOK"},
    "external diff": {"diff.external": "HOOK", "diff.x.textconv": "HOOK", "diff.x.command": "HOOK"},
    "included settings": {"include.path": "../settings"},
}


@pytest.mark.parametrize("submodule", [False, True])
@pytest.mark.parametrize("way", PROGRAMS)
def test_a_repository_cannot_start_programs(tmp_path: Path, way: str, submodule: bool) -> None:
    """Not by a program that its settings name, nor one that a submodule's do."""
    started, home = tmp_path / "started", tmp_path / "home"
    place = home / "sub" if submodule else home
    place.mkdir(parents=True)
    for made in {home, place}:
        git(made, "init", "-q")
    (place / "a.py").write_text("a = 1\n")
    name = "a=b.x" if "odd" in way else "x"
    (place / ".gitattributes").write_text(f"*.py filter={name} diff=x\n")
    for made in dict.fromkeys((place, home)):
        git(made, "add", "-A")
        git(made, "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "begin")
    hook = f"touch {started}; cat"
    (place / "settings").write_text(f'[filter "x"]\n clean = "{hook}"\n')
    for key, value in PROGRAMS[way].items():
        git(place, "config", key, value.replace("HOOK", hook))
    (place / "a.py").write_text("a = 2\n")
    (home / "b.py").write_text("b = 1\n")
    assert Snapshot(home).dirty
    assert not started.exists()
    subprocess.run(["git", "-C", str(place), "status"], capture_output=True, check=False)
    assert started.exists() or "diff" in way or submodule  # the control


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    with pytest.raises(BadInput, match="not a directory"):
        Snapshot(tmp_path / "a.py")
    with pytest.raises(CannotDo, match="not a git repository"):
        Snapshot(tmp_path, commit="HEAD")
    git(tmp_path, "init", "-q")
    for commit in ("nothing", "--all", ""):
        with pytest.raises(BadInput, match="commit"):
            Snapshot(tmp_path, commit=commit)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no text file"):
        Snapshot(tmp_path / "empty")


def test_names_that_no_tool_could_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "new\nline.py").write_text("a = 1\n")
    (tmp_path / "back\\slash.py").write_text("a = 1\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("a = 1\n")
    found = Snapshot(tmp_path)
    assert found.files == ("a.py",)
    assert len(found.refused) == 3


def test_from_files() -> None:
    made = Snapshot.from_files({"b.py": "x\n", "a/c.py": b"\xff\n"})
    assert made.files == ("a/c.py", "b.py")
    assert (made.origin, made.dirty, len(made)) == ("memory", None, 2)
    for bad in ({"../a": "x"}, {"a": b"\0"}, {"a": "x" * 2_000_001}, {}):
        with pytest.raises(BadInput):
            Snapshot.from_files(bad)


def test_lines_end_where_git_ends_them() -> None:
    text = "a\x0cb\u2028c\rd\r\ne\n\nf"
    made = Snapshot.from_files({"a.txt": text})
    assert made.lines("a.txt") == ["a\x0cb\u2028c\rd", "e", "", "f"]
    assert "".join(made.lines("a.txt", keepends=True)) == text
    assert made.length("a.txt") == 4
    empty = Snapshot.from_files({"e": "", "n": "\n"})
    assert [empty.length(name) for name in empty.files] == [0, 1]
    assert [empty.lines(name) for name in empty.files] == [[], [""]]


def test_near_misses() -> None:
    paths = ("src/parser.py", "lib/parser.py", "src/parse.py", "docs/guide.md")
    assert near_paths("parser.py", paths) == ("lib/parser.py", "src/parser.py")
    assert near_paths("src/parsr.py", paths)[:2] == ("src/parser.py", "src/parse.py")
    assert near_paths("SRC/PARSER.PY", paths)[0] == "src/parser.py"
    assert near_paths("nothing.txt", paths) == ()
