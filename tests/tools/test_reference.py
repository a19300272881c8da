"""The command-line reference and the constraints come from what is there."""

from typing import Annotated

import pytest
import typer
from packaging.requirements import Requirement

from support.toolbox import load

cli_reference = load("cli_reference")
constraints = load("constraints")


def test_reference_lists_commands_and_shows_usage_as_text():
    app = typer.Typer(help="What it is.")
    noun = typer.Typer(help="Things.")
    app.add_typer(noun, name="thing")

    @noun.command()
    def show(name: Annotated[str, typer.Argument(help="Which one.")], deep: bool = False) -> None:
        """Show a thing."""

    page = cli_reference.reference(app, "tool")
    assert "```text\ntool thing show [OPTIONS]" in page
    assert "Show a thing." in page
    assert "Which one." in page
    assert "```console" not in page


def test_closure_follows_markers_and_extras():
    found = constraints.closure([Requirement("pytest-cov")])
    assert {"pytest-cov", "pytest", "coverage", "pluggy", "iniconfig"} <= found.keys()
    assert "colorama" not in found
    assert "torch" not in constraints.closure([Requirement("torch")])
    with pytest.raises(SystemExit, match="not-a-package"):
        constraints.closure([Requirement("not-a-package")])


def test_roots_name_all_groups():
    project = {"dependencies": ["a>=1"], "optional-dependencies": {"more": ["b"]}}
    names = [need.name for need in constraints.roots(project, {"dev": ["c[x]"]})]
    assert names == ["a", "b", "c"]
