"""No text tells anybody to install this package by a name: on PyPI that name belongs to another project.

The packages of an extra are named by messages; pages install from the checkout (``pip install -e ".[web]"``).
"""

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from refork import errors
from refork.errors import MissingExtra, extra_packages, install_command

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("packages", "docs", "tests", "notebooks", "benchmarks", "tools", ".ci")
BINARY = {".png", ".pyc", ".gz", ".zip", ".eval", ".db", ".npz", ".safetensors", ".parquet", ".woff2"}
EXTRAS: dict[str, list[str]] = {}
for _file in sorted((ROOT / "packages").glob("*/pyproject.toml")):
    for _extra, _lines in tomllib.loads(_file.read_text())["project"]["optional-dependencies"].items():
        EXTRAS.setdefault(_extra, []).extend(line for line in _lines if line not in EXTRAS.get(_extra, []))

#: An extra behind the name; the name as what an installer is given; prose that says the same.
BY_NAME = re.compile(
    r"""(?x)
    (?<!packages/)\brefork\\*\[[a-z{]
    | \b(?:pip3?|pipx|uv|uvx|poetry|pdm|conda|mamba)\b
      (?:[\s"'`\\]+(?:pip|tool|install|add|inject|run))*
      (?:[ \t]+[^\s|;&]+)*? [\s"'`\\]+ refork\b (?![/_(])
    | \b(?:install|upgrade)\b \s+ (?:(?:a|the|same|newer|latest|version|of)\s+)* refork\b
    """
)


def texts():
    """Every text of the repository but this one."""
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            yield file
    for place in PLACES:
        for file in (ROOT / place).rglob("*"):
            if file.is_file() and file.suffix not in BINARY and file != Path(__file__).resolve():
                yield file


def test_no_text_installs_by_the_name():
    found = []
    for file in texts():
        text = file.read_text(encoding="utf-8", errors="replace")
        found += [f"{file.relative_to(ROOT)}: {match.group()!r}" for match in BY_NAME.finditer(text)]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "pip install refork",
        "python -m pip install --upgrade 'refork'",
        "pip install -q refork==0.1.0",
        "`pip install 'refork[web]'`",
        "needs refork[serve,grammar]",
        'f"refork[{extra}]"',
        'match=r"refork\\[web\\]"',
        'hint = (\n    "pip install "\n    "refork"\n)',
        "uv add refork",
        "uvx refork demo",
        "pipx install refork",
        "hint: install a newer refork",
        "install the same refork on every node",
    ],
)
def test_what_would_be_found(text):
    assert BY_NAME.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install -e '.[web]'\n$ refork demo",
        "--editable 'packages/refork[serve]'",
        'choice.refork["worker"]',
        "`pip install PATH`; then run refork",
        "pip install appworld; refork world list",
        "the name refork on PyPI is another project's",
    ],
)
def test_what_is_no_such_text(text):
    assert not BY_NAME.search(text)


def wanted():
    """Every extra that a message names, with its place."""
    call = re.compile(r"""(?:MissingExtra\([^()]*,\s*|install_command\(|extra ``)['"]?(\w+)""")
    for file in (ROOT / "packages").rglob("*.py"):
        for match in call.finditer(file.read_text()):
            if match.group(1) != "extra":
                yield f"{file.relative_to(ROOT)}: {match.group()}", match.group(1)


def test_every_message_names_an_extra_that_there_is():
    assert len(list(wanted())) > 40
    assert [place for place, extra in wanted() if extra not in EXTRAS] == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_are_those_of_the_extra(extra):
    """The distribution's metadata and pyproject.toml name the same packages, in any order of their bounds."""

    def parts(line):
        name = re.match(r"[\w.\[\]-]+", line).group()
        return name, frozenset(line[len(name) :].replace(" ", "").split(","))

    assert {parts(line) for line in extra_packages(extra)} == {parts(line) for line in EXTRAS[extra]}


def test_the_distribution_is_found_under_any_name(monkeypatch):
    """The owner of the command is asked, not whoever has the package's name."""

    def owned(group, module, *requires):
        points = [SimpleNamespace(group=group, module=module)]
        return SimpleNamespace(name=f"of {group} {module}", entry_points=points, requires=[*requires])

    known = [
        owned("console_scripts", "another.cli", 'wrong>=1; extra == "web"'),
        owned("console_scripts", "refork.cli", "numpy>=2", 'here>=2,<3; extra == "web"', "no; extra=='web2'"),
        owned("refork.worlds", "more.worlds", 'there>=1; extra == "shop"'),
        owned("reforked.worlds", "more.worlds", 'wrong>=1; extra == "shop"'),
    ]
    monkeypatch.setattr(errors, "distributions", lambda: known)
    assert extra_packages("shop") == ["there>=1"]
    assert extra_packages("web") == ["here>=2,<3"]
    assert install_command("web") == "pip install 'here>=2,<3'"
    assert MissingExtra("here", "web").hint == "pip install 'here>=2,<3'"
    # Another copy further down the path is not the one that runs.
    shadowed = owned("refork.worlds", "more.worlds", 'old>=1; extra == "shop"')
    monkeypatch.setattr(errors, "distributions", lambda: [*known, shadowed])
    assert extra_packages("shop") == ["there>=1"]


def test_a_source_tree_that_nobody_installed_names_the_extra(monkeypatch):
    monkeypatch.setattr(errors, "distributions", list)
    assert install_command("web") == "install the packages that pyproject.toml lists under the extra 'web'"
