"""The viewer on 100,000 nodes: first paint and scrolling in Chromium, beside inspect_ai's `inspect view`.

Run: python benchmarks/viewer.py [--quick]. Both show the same 100,000 texts: a tree of one task here, and
there one sample with a message for each node, in reading order, written by inspect_ai's own API. Every server
is a fresh process and every visit a fresh browser. First paint is the moment at which texts stand at three
places of the list, in milliseconds since the navigation began; a scroll is a jump to a far place until texts
stand there.

inspect_ai allows no fsspec as new as `datasets` has it, so it lives in an environment of its own, made on the
first run (without --quick) or named by REFORK_INSPECT, the path of a Python that has it.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from parts.peer_env import peer_python
from parts.store_inspect import NAMED, PEER
from refork.tree import NewNode, Producer, Score, Tree, node_id
from refork_worlds.web.browser import FLAGS, executable

NODES = 100_000
WORDS = (
    "go",
    "take",
    "open",
    "look",
    "north",
    "south",
    "key",
    "door",
    "lamp",
    "cellar",
    "red",
    "blue",
    "put",
)
#: Seconds a page may take before it counts as not shown.
LIMIT = 120
START = (sys.executable, "-c", "from refork.cli import main; main()")

WRITE = """
import json, sys
from datetime import datetime, timezone
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, EvalStats, write_eval_log
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput

texts = [json.loads(line) for line in open(sys.argv[1])]
kinds = {"action": ChatMessageAssistant}
messages = [kinds.get(kind, ChatMessageUser)(content=text) for kind, text in texts]
output = ModelOutput.from_content("walker", texts[-1][1])
sample = EvalSample(id=1, epoch=1, input=texts[0][1], target="", messages=messages, output=output)
spec = EvalSpec(created=datetime.now(timezone.utc).isoformat(), task="rollouts", model="none/none",
                dataset=EvalDataset(name="rollouts", samples=1), config=EvalConfig())
write_eval_log(EvalLog(status="success", eval=spec, stats=EvalStats(), samples=[sample]), sys.argv[2])
"""

#: Whether texts of the tree stand in three bands of the list (between two messages there is a gap).
SHOWN = """
const told = (y) => {
  let at = document.elementFromPoint(220, y);
  for (let up = 0; at && up < 4; up += 1, at = at.parentElement) {
    if (/\\b(WORDS)\\b/.test(at.textContent) && at.clientHeight < 300) return true;
  }
  return false;
};
window.shown = () => [380, 500, 620].every((y) => [0, 12, 24, 36, 48, 60].some((down) => told(y + down)));
""".replace("WORDS", "|".join(WORDS))
WATCH = """
const look = () => {
  if (document.body && window.shown()) window.firstShown = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
#: Jump to a part of the list; milliseconds until texts stand there.
JUMP = """async ([part, limit]) => {
  const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowY);
  const boxes = [...document.querySelectorAll("*")].filter(scrolls);
  const box = boxes.reduce((most, one) => (one.scrollHeight > most.scrollHeight ? one : most));
  const began = performance.now();
  box.scrollTop = part * (box.scrollHeight - box.clientHeight);
  while (performance.now() - began < limit) {
    await new Promise((done) => requestAnimationFrame(done));
    if (window.shown()) return performance.now() - began;
  }
  return null;
}"""


def planted(path: Path, nodes: int) -> str:
    """A tree of one task: runs of 4 to 11 turns, each from a random earlier observation; the task's id."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, len(WORDS), (nodes, 12))
    lengths, places = rng.integers(4, 12, nodes), rng.random(nodes)
    with Tree.open(path, "x") as tree:
        text = "Find the red key and bring it to the cellar."
        task = tree.append(NewNode(kind="task", key="t", text=text, extra={"world": "synthetic"}))[0].id
        judge = tree.add_producer(Producer("judge"))
        starts, made, runs = [task], 1, 0
        drafts: list[NewNode] = []
        scores: list[Score] = []
        while made < nodes:
            at = starts[int(places[runs] * len(starts))]
            for step in range(min(int(lengths[runs]), nodes - made)):
                kind = "observation" if step % 2 else "action"
                count = 12 if step % 2 else 4
                said = " ".join(WORDS[word] for word in words[made, :count])
                drafts.append(NewNode(kind=kind, parent=at, key=str(made), text=said))
                at = node_id(at, None, kind, str(made))
                made += 1
                if step % 2:
                    starts.append(at)
            scores.append(Score(at, "success", float(places[runs] < 0.4), judge))
            runs += 1
        tree.commit(drafts, scores=scores)
    return task


def texts(path: Path, file: Path) -> None:
    """The same texts in reading order, as lines of JSON."""
    with Tree.open(path, "r") as tree, file.open("w") as out:
        for node in tree.walk():
            print(json.dumps([node.kind, node.text]), file=out)


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as open_:
        return int(open_.getsockname()[1])


@contextmanager
def served(command: list[str], port: int) -> Iterator[str]:
    """A server's own process, once it answers."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        end = time.monotonic() + LIMIT
        while True:
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                if time.monotonic() > end or server.poll() is not None:
                    raise RuntimeError(f"no answer from {' '.join(command[:3])}") from None
                time.sleep(0.1)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def visit(play: Any, url: str, jumps: int) -> dict[str, Any]:
    """One visit in a fresh browser: first paint, the browser's own first contentful paint, and jumps."""
    browser = play.chromium.launch(executable_path=executable(), args=list(FLAGS))
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        page.add_init_script(SHOWN + WATCH)
        page.goto(url, timeout=1000 * LIMIT)
        try:
            page.wait_for_function("window.firstShown", timeout=1000 * LIMIT)
        except Exception as error:
            if "Timeout" not in str(error):
                raise
            return {"first": None, "content": None, "jumps": []}
        first = page.evaluate("window.firstShown")
        content = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)[0] ?? null"
        )
        places = np.random.default_rng(1).random(jumps).tolist()
        found = [page.evaluate(JUMP, [place, 1000 * LIMIT / 12]) for place in places]
        return {"first": first, "content": content, "jumps": found}
    finally:
        browser.close()


def visits(play: Any, kind: str, command: list[str], place: str, repeats: int, jumps: int) -> dict[str, Any]:
    """Medians over visits, each to a fresh server."""
    seen = []
    for _ in range(repeats):
        port = free_port()
        with served([*command, str(port)], port) as address:
            seen.append(visit(play, address + place, jumps))
    shown = [one["first"] for one in seen if one["first"] is not None]
    moved = [ms for one in seen for ms in one["jumps"] if ms is not None]
    contents = [one["content"] for one in seen if one["content"] is not None]
    lost = sum(ms is None for one in seen for ms in one["jumps"]) + len(seen) - len(shown)
    return {
        f"{kind}first_paint_ms": statistics.median(shown) if shown else None,
        f"{kind}contentful_ms": statistics.median(contents) if contents else None,
        f"{kind}scroll_ms": statistics.median(moved) if moved else None,
        f"{kind}scroll_worst_ms": max(moved, default=None),
        f"{kind}not_shown": lost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--quick", action="store_true", help="one visit each; the peer only where it is installed"
    )
    quick = parser.parse_args().quick
    from playwright.sync_api import sync_playwright

    repeats, jumps = (1, 10) if quick else (5, 20)
    found: dict[str, Any] = {"nodes": NODES}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        folder = Path(name)
        task = planted(folder / "tree.db", NODES)
        command = [*START, "view", str(folder / "tree.db"), "--port"]
        found |= visits(play, "", command, f"#/tree.db/{task}?steps=each&open=all", repeats, jumps)
        python = peer_python(PEER, NAMED, make=not quick)
        if python is not None:
            (folder / "logs").mkdir()
            texts(folder / "tree.db", folder / "texts.jsonl")
            writing = [python, "-c", WRITE, str(folder / "texts.jsonl"), str(folder / "logs" / "log.eval")]
            subprocess.run(writing, check=True, capture_output=True)
            inspect = str(Path(python).parent / "inspect")
            command = [inspect, "view", "start", "--log-dir", str(folder / "logs"), "--port"]
            place = "#/tasks/log.eval/samples/sample/1/1/messages"
            found |= visits(play, "peer_", command, place, repeats, jumps)
    print(f"{'':44} {'refork view':>12} {'inspect view':>12}")
    for label, key in (
        ("first texts in sight, ms", "first_paint_ms"),
        ("browser's first contentful paint, ms", "contentful_ms"),
        ("jump to a far place, ms (median)", "scroll_ms"),
        ("jump to a far place, ms (worst)", "scroll_worst_ms"),
        (f"not shown within {LIMIT} s", "not_shown"),
    ):
        ours, theirs = (found.get(prefix + key) for prefix in ("", "peer_"))
        cells = ["" if value is None else f"{value:,.0f}" for value in (ours, theirs)]
        print(f"{label:44} {cells[0]:>12} {cells[1]:>12}")
    for key in ("first_paint", "scroll"):
        ours, theirs = (found.get(f"{prefix}{key}_ms") for prefix in ("", "peer_"))
        if ours and theirs:
            found[f"{key}_ratio"] = theirs / ours
    told = {key: round(value, 1) if isinstance(value, float) else value for key, value in found.items()}
    print(json.dumps(told | {"quick": quick}))


if __name__ == "__main__":
    main()
