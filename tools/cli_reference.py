"""Write docs/reference/cli.md from the commands' own help; ``--check`` says whether it is up to date."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

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
    return HEAD + body.replace("```console\n$ ", "```text\n").strip() + "\n"


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
