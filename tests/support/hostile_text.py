"""Texts that act on a terminal, in everything that a command reads; what is left of them in its output."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sqlite3
import sys
import threading
import typing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer

from refork import MatchJudge, Remove, ScriptedPolicy, cli, fork, plant_prompt
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.schema import FIELDS, TABLES
from refork.tree.score import DrawRecord, ForkRecord
from support.command import kind

#: Title, link, question that the terminal answers into the input, clipboard, screen cleared, styles that
#: hide, 8-bit controls, line gone over again, direction turned, letters that are not seen; rich's markup.
EVIL = (
    "\x1b]0;owned\x07\x1b]8;;http://x.invalid\x1b\\link\x1b]8;;\x1b\\\x1b[6n\x1b]52;c;cm0=\x07\x1b[2J\x1b[8mhid\x1b[38;5;199m"
    "\x1bP1$r\x1b\\\x1bc\x9b31m\x9d0;t\x9c\x90q\x85\rover\x08\x7f\x00\x0b\x0c\u202egnp\u2066i\u2069\u200f\u061c"
    "\u2028\u2029\u200b\u2060\ufeff\u00ad\u115f\u3164\U000e0041\U000e0101[bold][/nothing][link=http://x]:boom:"
)
#: The part of it that a file may be called, with a byte that is no text.
NAME = "n\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\u2066\u200b\x7f[red]\udcff"
#: SQLite opens no such name.
TREE_NAME = NAME.replace("\udcff", "")
#: What rich and typer write for ours; the styles above are none of them.
OURS = re.compile(r"\x1b\[(?!8m|38;5;199m)[\d;]*m|\x1b\[\?25[hl]|\x1b\[(?:2K|1A)|\r(?=\x1b\[)")
#: Written out apart from the code that is tested.
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
#: Columns that hold words of ours, numbers or JSON, which a valid tree cannot have otherwise.
WORDS = {
    ("nodes", "kind"), ("nodes", "noise"), ("nodes", "origin"), ("nodes", "finish"), ("draws", "end"),
    ("nodes", "cost"), ("producers", "id"), ("producers", "reads"), ("forks", "seed"),
    ("forks", "stream"),
}  # fmt: skip

#: They serve until they are stopped.
SERVING = {("serve",), ("view",), ("route", "serve"), ("simulate", "serve")}
#: A text as an argument: the system takes no zero bytes in one.
WORD = EVIL.replace("\0", "")
#: What reads a hostile tree to its end: {db}, {step} and {spoiled} stand for the files.
READ = (
    "tree list {db}", "tree list {db} --json", "tree show {db}", "tree show {db} --json", "tree stats {db}",
    "tree stats {db} --json", "tree path {db} {step}", "tree path {db} {step} --json", "tree schema {db}",
    "tree verify {db}", "tree verify {spoiled}", "tree verify {spoiled} --json", "tree export {db}",
    "tree export {db} - --format openai-chat", "tree import new.db {jsonl}",
    "tree import new.db {jsonl} --json", "tree merge all.db {db}", "compare --tree {db}",
    "tree compare --tree {db} --json", "agent list {db}",
    "train export --tree {db} --out rows.jsonl", "credit report {db}",
    "credit graph {db}", "credit advantages {db}", "credit compare {db}", "judge compare {db}",
    "view {db} --export page.html", "run list",
)  # fmt: skip


def left(text):
    """What of an output would act, with what stands before it."""
    bare = OURS.sub("", text)
    return [repr(bare[max(0, m.start() - 30) : m.end() + 5]) for m in ACTING.finditer(bare)]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def told(command, *typed, terminal=True):
    """Exit status and all that a command writes, an uncaught error as Python would print it."""
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    status = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["refork", *map(str, typed)])
        patch.setattr(cli, "app", command)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "100")
        for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS"):
            patch.delenv(name, raising=False)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as stop:
                status = stop.code or 0
            except Exception:
                status = 1
                sys.excepthook(*sys.exc_info())
    return status, out.getvalue(), err.getvalue()


def whole():
    """The whole command line."""
    return typer.main.get_command(cli.app)


def words_for(path, command, file, step):
    """A verb with that file for all that it reads, hostile words for the rest; None where it reads none."""
    typed, reads = list(path), False
    for param in command.params:
        file_of = "path" in kind(param)
        if not (param.required or (file_of and param.param_type_name == "argument")):
            continue
        choices = typing.get_args(param.type_descriptor.annotation) if "literal" in kind(param) else ()
        value = (
            str(choices[0]) if choices else f"out{NAME}" if param.name == "out"
            else step[:8] if param.name == "node" else str(file) if file_of
            else "1" if "int" in kind(param) else "0.5" if "float" in kind(param) else WORD
        )  # fmt: skip
        reads |= file_of and param.name != "out"
        typed += [value] if param.param_type_name == "argument" else [param.opts[0], value]
    return typed if reads else None


def hostile_tree(file):
    """A sound tree in which every text that may be anything is hostile; gives the id of a step."""
    noise = NoiseKey(1, 2, 3)
    with Tree.open(file, "x") as tree:
        task = NewNode(
            kind="task", key=EVIL, text=EVIL, state_key=EVIL,
            extra={"world": EVIL, "origin": {EVIL: EVIL}, EVIL: EVIL},
            message={"role": "user", "content": EVIL, EVIL: EVIL},
        )  # fmt: skip
        [root] = tree.append(task)
        step = NewNode(
            kind="action", parent=root.id, key=EVIL, text=EVIL, policy=EVIL, weights=EVIL, noise=noise,
            settings={EVIL: EVIL}, error=EVIL, finish="error", fork=EVIL, snapshot=EVIL.encode(),
            message={"role": "assistant", "content": EVIL, "tool_calls": [{EVIL: EVIL}]},
            extra={"tool": EVIL, "request": {EVIL: EVIL}},
        )  # fmt: skip
        [step] = tree.append(step)
        other = NewNode(
            kind="observation", parent=step.id, key="o", text=EVIL, error=EVIL, origin="simulated"
        )
        [seen] = tree.append(other)
        [leaf] = tree.append(NewNode(kind="verdict", parent=seen.id, key="v", text=EVIL, extra={EVIL: EVIL}))
        judge = tree.add_producer(Producer(EVIL, EVIL, {EVIL: EVIL}))
        gone = tree.add_producer(Producer(EVIL + "2", EVIL, {EVIL: EVIL}))
        for name, by in ((EVIL, judge), ("success", judge), (EVIL, gone)):
            tree.add_scores([Score(leaf.id, name, 0.5, by, reason=EVIL)])
        tree.retire(gone, EVIL)
        tree.begin_fork(
            ForkRecord(
                EVIL, step.id, None, {"kind": EVIL, EVIL: EVIL}, {"name": EVIL, EVIL: EVIL},
                Sampling(stop=(EVIL,)).to_json(), EVIL, 1, 2, {EVIL: EVIL},
            )
        )  # fmt: skip
        tree.finish_draws([DrawRecord(EVIL, 0, leaf.id, "error", EVIL)])
        grown(tree)
        return step.id


def grown(tree):
    """Arms with draws and scores, so that commands which compare and count have something to print."""
    words = {"right": f" right{EVIL}", "wrong": f" wrong{EVIL}"}
    chain = {"": dict.fromkeys(words.values(), 0.5), **{word: {"": 1.0} for word in words.values()}}
    actor = ScriptedPolicy.from_chain(chain, name=EVIL)
    judge = MatchJudge("right|" + re.escape(EVIL + EVIL))
    start = plant_prompt(tree, actor, EVIL)
    base = fork(start, actor, 6, settings=Sampling(max_tokens=4), judge=judge)
    point = tree.at(
        next(trajectory for trajectory in base.leaves() if "right" in trajectory.leaf.text).leaf, 1
    )
    fork(point, actor, 4, judge=judge)
    fork(point, actor, 4, Remove(1), judge=judge)


def columns_without(file):
    """Text columns of a tree that hold nothing hostile."""
    found = []
    with contextlib.closing(sqlite3.connect(file)) as base:
        for field in FIELDS:
            if not field.sql.startswith("TEXT") or field.table == "meta":
                continue
            texts = [str(row[0]) for row in base.execute(f'SELECT "{field.name}" FROM {field.table}')]
            if not any("\x1b" in text or "\\u001b" in text for text in texts):
                found.append((field.table, field.name))
    return found


def spoil(file):
    """Make every text of a tree hostile, names and words of ours included, whatever then holds."""
    with contextlib.closing(sqlite3.connect(file)) as base, base:
        for table in TABLES:
            for field in FIELDS:
                if field.table == table and field.sql.startswith("TEXT"):
                    with contextlib.suppress(sqlite3.Error):
                        base.execute(
                            f'UPDATE {table} SET "{field.name}" = "{field.name}" || ? || rowid', (EVIL,)
                        )


def hostile_files(folder):
    """Trees and texts with hostile names and contents, by kind; a tree's step is told apart."""
    folder = Path(folder)
    files = {kind: folder / f"{NAME}.{kind}" for kind in ("json", "jsonl", "csv")}
    files["db"] = folder / f"{TREE_NAME}.db"
    step = hostile_tree(files["db"])
    files["spoiled"] = folder / f"{TREE_NAME}-spoiled.db"
    files["spoiled"].write_bytes(files["db"].read_bytes())
    spoil(files["spoiled"])
    line = {
        "id": EVIL,
        "messages": [{"role": "user", "content": EVIL}, {"role": "assistant", "content": EVIL}],
        EVIL: EVIL,
    }
    files["json"].write_text(json.dumps(line))
    files["jsonl"].write_text(
        "".join(json.dumps(one) + "\n" for one in (line, {"prompt": EVIL, "text": EVIL}, EVIL))
    )
    files["csv"].write_text(f"{EVIL},{EVIL}\n", newline="")
    files["missing"] = folder / f"{NAME}-missing"
    return files, step


@contextlib.contextmanager
def hostile_server():
    """A server of models that refuses with texts that act; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def _refuse(self):
            size = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(size)
            body = json.dumps(
                {"error": {"message": EVIL, "type": EVIL, "code": EVIL}, "detail": EVIL}
            ).encode()
            if "models" in self.path:
                body = json.dumps({"object": "list", "data": [{"id": EVIL, "object": "model"}]}).encode()
            elif "raw" in self.path:
                body = EVIL.encode()
            self.send_response(200 if "models" in self.path else 400, "no\x1b]0;x\x07")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _refuse  # noqa: N815

        def log_message(self, *given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
