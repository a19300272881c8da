"""Run the documentation: every python and console block of README.md and docs/, page by page.

A page runs in an empty folder of its own. Its ```python blocks share one namespace, top to bottom. In a
```console block the lines that begin with "$ " are run by bash (a line that ends in a backslash goes on in
the next); the others show output. A comment on the line above a block changes what is expected:

    <!-- skip: reason -->   not run; the reason is printed
    <!-- exit: N -->        the block's last command ends with status N (all others with 0)
    <!-- match -->          the output shown is the output got; "..." stands for anything

A block of any language with title="FILE" is not run: it is written to FILE, for the blocks after it.

What Refork keeps between runs (trained organisms, drafters, recordings) is in an empty folder at the start,
which the pages share and which is gone at the end, so that no page sees what its reader happens to have.
``--home FOLDER`` keeps it instead: quicker the next time.

Every page and every ``refork`` of a console block is a process of its own, forked from one that has read the
large libraries (tools/warm.py). Pages and commands have one such process each, so their hash seeds differ.
With ``--cold`` each process starts from nothing, which takes twice as long.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warm import Warm

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 300  # seconds a page may take
FAILED, TIMED_OUT = 1, 124


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block, with the output shown below it."""

    text: str
    shown: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its body, the line of its first body line, and what is expected."""

    language: str
    body: tuple[str, ...]
    line: int
    skip: str | None = None
    exit: int = 0
    match: bool = False
    file: str | None = None

    def commands(self) -> list[Command]:
        """The commands of a console block, in order."""
        found: list[tuple[list[str], list[str], int]] = []
        open_line = False
        for number, line in enumerate(self.body, self.line):
            if open_line:
                found[-1][0].append(line)
            elif line.startswith("$ "):
                found.append(([line[2:]], [], number))
            elif found:
                found[-1][1].append(line)
                continue
            else:
                continue
            open_line = line.endswith("\\")
        return [Command("\n".join(text), tuple(shown), number) for text, shown, number in found]


def blocks(page: str) -> list[Block]:
    """The python and console blocks of a Markdown page."""
    found: list[Block] = []
    lines = page.splitlines()
    index = 0
    while index < len(lines):
        fence = re.match(r'^(\s*)(`{3,})\s*(\w*)(?: title="([\w./-]+)")?', lines[index])
        if not fence:
            index += 1
            continue
        start = index
        index += 1
        while index < len(lines) and lines[index].strip() != fence[2]:
            index += 1
        body = textwrap.dedent("\n".join(lines[start + 1 : index])).splitlines()
        index += 1
        if fence[3] in ("python", "console") or fence[4]:
            wanted = _expectations(lines[:start])
            found.append(Block(fence[3], tuple(body), start + 2, file=fence[4], **wanted))
    return found


def _expectations(above: list[str]) -> dict[str, Any]:
    """What the comments directly above a block ask for."""
    wanted: dict[str, Any] = {}
    for line in reversed(above):
        comment = re.fullmatch(r"\s*<!--\s*(.*?)\s*-->\s*", line)
        if not comment:
            break
        if skip := re.fullmatch(r"skip:\s*(.+)", comment[1]):
            wanted["skip"] = skip[1]
        elif status := re.fullmatch(r"exit:\s*(\d+)", comment[1]):
            wanted["exit"] = int(status[1])
        elif comment[1] == "match":
            wanted["match"] = True
    return wanted


def matches(shown: tuple[str, ...], got: str) -> bool:
    """Whether output is as shown, blank ends aside; ``...`` stands for anything, line breaks included."""
    plain = [
        "\n".join(line.rstrip() for line in text.strip().splitlines()) for text in ("\n".join(shown), got)
    ]
    pattern = ".*?".join(re.escape(part) for part in plain[0].split("..."))
    return re.fullmatch(pattern, plain[1], re.DOTALL) is not None


class Failure(Exception):
    """A block that did not do what the page says: the line and what happened."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


ASSIGNMENT = re.compile(r"([A-Z_]+)=")


def run_console(block: Block) -> None:
    """Run a console block's commands; raises :class:`Failure` at the first that disagrees."""
    commands = block.commands()
    for command in commands:
        name = ASSIGNMENT.match(command.text)
        keep = f' && printf %s "${name[1]}"' if name else ""
        done = subprocess.run(
            ["bash", "-c", command.text + keep],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        wanted = block.exit if command is commands[-1] else 0
        report = f"$ {command.text}\n{done.stdout[-4000:]}"
        if done.returncode != wanted:
            raise Failure(command.line, f"exit status {done.returncode}, not {wanted}\n{report}")
        if name:  # a variable that a command sets is there for the page's later commands
            os.environ[name[1]] = done.stdout
        if block.match and not matches(command.shown, done.stdout):
            raise Failure(command.line, f"other output than shown\n{report}")


def run_python(block: Block, namespace: dict[str, Any], page: str) -> None:
    """Run a python block in the page's namespace; raises :class:`Failure` where it raises."""
    source = "\n" * (block.line - 1) + "\n".join(block.body)
    try:
        exec(compile(source, page, "exec"), namespace)
    except BaseException as error:
        rows = [row for row in traceback.extract_tb(error.__traceback__) if row.filename == page]
        line = rows[0].lineno if rows else getattr(error, "lineno", None)
        raise Failure(line or block.line, "".join(traceback.format_exception(error, limit=-3))) from None


def run_blocks(page: Path) -> int:
    """Run one page in the current folder, reporting on standard output; the exit status."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        if block.skip:
            continue
        try:
            if block.file:
                Path(block.file).write_text("\n".join(block.body) + "\n")
            elif block.language == "console":
                run_console(block)
            else:
                run_python(block, namespace, str(page))
        except Failure as failure:
            print(f"{page}:{failure.line}: {failure}", flush=True)
            return FAILED
    return 0


@dataclass(slots=True)
class Outcome:
    """How a page went."""

    page: str
    status: int
    seconds: float
    output: str
    ran: int
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Start:
    """How processes start: what stands before a script of Python, and where commands are looked for first."""

    launch: tuple[str, ...] = (sys.executable,)
    commands: tuple[Path, ...] = (Path(sys.executable).parent,)


@contextmanager
def home(folder: Path | None) -> Iterator[None]:
    """Let Refork keep what it builds in ``folder``, or in one that is gone afterwards."""
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refork-docs-home-")))
        before = os.environ.get("REFORK_HOME")
        os.environ["REFORK_HOME"] = str(folder.resolve())
        try:
            yield
        finally:
            os.environ.pop("REFORK_HOME")
            if before is not None:
                os.environ["REFORK_HOME"] = before


def environment(commands: tuple[Path, ...]) -> dict[str, str]:
    """What a page finds in its environment."""
    env = dict(os.environ, PATH=os.pathsep.join([*map(str, commands), os.environ.get("PATH", "")]))
    return env | {"HF_HUB_OFFLINE": "1", "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}


@contextmanager
def warm() -> Iterator[Start]:
    """Pages and ``refork`` commands each forked from a process that has read the libraries."""
    cold = Start()
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refork-warm-"))) for _ in "12"
        ]
        page, command = (stack.enter_context(Warm(folder, environment(cold.commands))) for folder in folders)
        shelf = folders[1] / "bin"
        shelf.mkdir()
        command.command(cold.commands[0] / "refork", shelf / "refork")
        yield Start(tuple(page.launch()), (shelf, *cold.commands))


def run_page(page: Path, limit: float, start: Start = Start()) -> Outcome:
    """Run a page in a process and a scratch folder of its own, under a time limit."""
    name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)
    found = blocks(page.read_text())
    skipped = [f"{name}:{block.line}: {block.skip}" for block in found if block.skip]
    started = time.monotonic()
    outcome = Outcome(name, 0, 0.0, "", len(found) - len(skipped), skipped)
    if not outcome.ran:
        return outcome
    with tempfile.TemporaryDirectory(prefix="refork-docs-") as folder:
        child = subprocess.Popen(
            [*start.launch, __file__, "--in-place", str(page)],
            cwd=folder,
            env=environment(start.commands),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            outcome.output, _ = child.communicate(timeout=limit)
            outcome.status = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            outcome.output, outcome.status = f"{output}{name}: not done after {limit:g} s\n", TIMED_OUT
    outcome.seconds = time.monotonic() - started
    return outcome


def pages(only: list[str]) -> list[Path]:
    """README.md and every page of docs/, or those whose path contains one of ``only``."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not only or any(name in str(page.relative_to(ROOT)) for name in only)]


def main() -> int:
    """Run the pages asked for and print a summary; 1 where one failed."""
    parser = argparse.ArgumentParser(description="Run the documentation's python and console blocks.")
    parser.add_argument("--only", action="append", default=[], metavar="PAGE", help="part of a page's path")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a page may take")
    parser.add_argument("--jobs", type=int, default=2, help="pages at once")
    parser.add_argument("--home", type=Path, help="where what Refork builds is kept, rather than thrown away")
    parser.add_argument("--cold", action="store_true", help="every process reads the libraries itself")
    parser.add_argument("--in-place", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_place:
        return run_blocks(args.in_place)
    chosen = pages(args.only)
    if not chosen:
        print(f"no page has {' or '.join(args.only)} in its path")
        return 2
    # The pages with most to run first, so that at the end no worker waits for a long one.
    longest = sorted(chosen, key=lambda page: -sum(len(block.body) for block in blocks(page.read_text())))
    with ExitStack() as stack:
        stack.enter_context(home(args.home))
        start = stack.enter_context(nullcontext(Start()) if args.cold else warm())
        pool = stack.enter_context(ThreadPoolExecutor(args.jobs))
        ran = dict(
            zip(longest, pool.map(lambda page: run_page(page, args.limit, start), longest), strict=True)
        )
    outcomes = [ran[page] for page in chosen]
    for outcome in outcomes:
        for reason in outcome.skipped:
            print(f"  skipped {reason}")
        if outcome.ran:
            word = "ok    " if outcome.status == 0 else "FAILED"
            print(f"{word} {outcome.page}  {outcome.ran} blocks, {outcome.seconds:.1f} s")
        if outcome.status:
            print(textwrap.indent(outcome.output.rstrip(), "    "))
    failed = sum(outcome.status != 0 for outcome in outcomes)
    print(f"{len(outcomes)} pages, {sum(o.ran for o in outcomes)} blocks run, {failed} pages failed")
    return FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
