"""Write docs/reference/cli.md from the commands' own help; ``--check`` says whether it is up to date."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/cli.md"
HEAD = """\
<!-- Written by `make reference` from the commands' own help; do not edit. -->

# Command line

Every command that prints data takes `--json`; one that gives up prints why there, as
`{"error": {"kind": ..., "what": ..., "where": ..., "hint": ...}}`. Exit status: 0 done, 1 found something,
2 usage or an error that you can mend, 130 interrupted.

Options that are not used daily stand in the recipe of a command, which its section ends with: a key is
given in a file (`--recipe FILE`), alone (`--set KEY=VALUE`), or as an option of its name. The command prints
its recipe with `--template`. An option wins over `--set`, and that over the file.

The commands of methods stand under `refork method`; `refork NAME` does the same as `refork method NAME` for
those that come with Refork. [Extend](../extend.md) shows how a package adds one.

"""


def reference(app: typer.Typer, name: str) -> str:
    """Markdown of an app's whole help. Usage lines are shown as text: they are not commands to run."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name=name)
    # Without a markup mode, typer's generator prints Rich's markup as it stands.
    context.obj = {}
    body = get_docs_for_click(obj=command, ctx=context, name=name)
    body = body.split("\n", 1)[1].lstrip()  # its title; ours stands above
    for path, verb in commands(command, (name,)):
        if recipe := getattr(verb.callback, "recipe", None):
            heading = re.search(rf"^#+ `{' '.join(path)}`$", body, re.MULTILINE)
            assert heading is not None
            end = body.find("\n#", heading.end())
            template = recipe.template(" ".join(path)).replace("\n\n", "\n")
            text = f"\n**Recipe**:\n\n```toml\n{template}\n```\n"
            body = f"{body}\n{text}" if end < 0 else f"{body[:end]}{text}{body[end:]}"
    return HEAD + body.replace("```console\n$ ", "```text\n").strip() + "\n"


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that the help shows, below a group."""
    for name in command.list_commands(typer.Context(command)):
        inner, here = command.commands[name], (*path, name)
        yield from commands(inner, here) if hasattr(inner, "commands") else [(here, inner)]


def render() -> str:
    """The page for the ``refork`` command."""
    module = importlib.import_module("refork.cli")
    page = reference(module.app, "refork")
    return re.sub(r"[ \t]+$", "", page, flags=re.MULTILINE)


def main() -> int:
    """Write the page, or (``--check``) compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    page = render()
    if args.check:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not what the commands say; run `make reference`")
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page)
    print(f"{PAGE.relative_to(ROOT)}: {page.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
