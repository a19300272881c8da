"""Draw docs/pictures/viewing-*.png: a small maze tree in the viewer, and a fork made from its page.

Run it where Chromium is; equal code gives equal trees, and pictures of the same fonts equal bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from refork.cli.common import world_for
from refork.policies.open import open_policy
from refork.tree import Tree
from refork.viewer.live.forking import Forking, ForkSetup
from refork.viewer.live.server import viewing
from refork.viewer.live.shelf import Shelf
from refork_worlds.web import browser

OUT = Path(__file__).resolve().parent.parent / "docs" / "pictures"
#: Bytes that one picture may take.
MOST = 150_000


def main() -> None:
    """Grow the tree, take both pictures."""
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "maze"
        words = ["grow", "--world", "maze:2,2,2", "--policy", "scripted:walker", "--selector", "uucb"]
        command = [sys.executable, "-c", "from refork.cli import main; main()", *words]
        more = ["--leaves", "24", "--set", "tasks.count=1", "--out", str(run)]
        subprocess.run([*command, *more], check=True, capture_output=True)
        with Tree.open(run / "tree.db", "r") as tree:
            task = next(tree.tasks())
            judged = [score.node for score in tree.scores(name="success", under=task) if score.value == 1]
            leaf = judged[0]
            node = next(step.node for step in tree.path(leaf) if step.node.kind == "action")
        shelf = Shelf([run / "tree.db"])
        actor = ForkSetup(
            open_policy("scripted:walker"), lambda walk: world_for(walk, None), None, "scripted:walker"
        )
        OUT.mkdir(exist_ok=True)
        with viewing(shelf, Forking(actor, shelf.file)) as address:
            place = f"{address}#/tree.db/{task.id}?node={leaf}"
            browser.in_browser(lambda chromium: pictures(chromium, place, node.id))
    for picture in sorted(OUT.glob("viewing-*.png")):
        size = picture.stat().st_size
        print(f"{picture.name} {size:,} bytes")
        if size > MOST:
            sys.exit(f"{picture.name} is too large")


def pictures(chromium: Any, place: str, node: str) -> None:
    """The tree beside a walk, and the card of a fork behind a token."""
    page = chromium.new_page(viewport={"width": 1200, "height": 600}, color_scheme="light")
    page.goto(place)
    page.wait_for_selector(".step.action .tok")
    page.wait_for_selector(".pending", state="detached")
    page.wait_for_timeout(300)
    page.screenshot(path=OUT / "viewing-tree.png")
    page.click(f"[id='tok-{node}-0']")
    page.select_option(".fork select", "set")
    page.fill(".fork input[type=text]", "temperature=0")
    page.fill(".fork .short input >> nth=0", "24")
    page.click("text=Draw 24")
    page.wait_for_selector(".fork [role=status]:has-text('done')", timeout=280_000)
    page.click(".fork .draws summary")
    page.locator(".fork .effect").screenshot(path=OUT / "viewing-effect.png")
    page.close()


if __name__ == "__main__":
    main()
