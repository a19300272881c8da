"""The page in real Chromium: read, searched, walked by keys, forked, shared; every view checked by axe."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from refork import MatchJudge, Tree, fork
from refork.formats.openai_chat import OpenAIChat
from refork.tree.node import NewNode
from refork.viewer.live.export import export_page
from refork.viewer.live.forking import Forking, ForkSetup
from refork.viewer.live.server import viewing
from refork.viewer.live.shelf import Shelf
from refork_worlds.web import browser
from support.viewer_tree import grow, policy

WHY = browser.missing()
pytestmark = pytest.mark.skipif(WHY is not None, reason=WHY or "")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
CHECK = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const shown = (one) => one.nodes.slice(0, 3).map((node) => node.html).join(" ");
  return found.violations.map((one) => `${one.id}: ${shown(one)}`);
}"""
#: Whether everything fits the width of the window.
FITS = "document.documentElement.scrollWidth <= innerWidth"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A viewer that forks, with its tree and a second one beside it."""
    folder = tmp_path_factory.mktemp("site")
    tree = grow(folder / "tree.db")
    shutil.copy(tree.file, folder / "again.db")
    shelf = Shelf([folder])
    actor = ForkSetup(policy(), lambda trajectory: None, MatchJudge("right"), "script")
    with viewing(shelf, Forking(actor, shelf.file)) as address:
        tree.address = address
        yield tree


@contextmanager
def opened(chromium, address, said, **options):
    """A fresh tab; whatever its console complains of, or that asks another machine, is put into ``said``."""
    usual = {"locale": "en-US", "viewport": WIDE, "reduced_motion": "reduce"}
    context = chromium.new_context(**usual | options)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda told: said.append(told.text) if told.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: said.append("a dialog opened"))
    here = ("data:", "blob:", "file:", address.partition("#")[0])
    page.on("request", lambda asked: None if asked.url.startswith(here) else said.append(asked.url))
    try:
        page.goto(address)
        yield page
    finally:
        context.close()


def ready(page):
    """Wait until nothing that is in sight is still being read."""
    page.wait_for_selector("#main", state="attached")
    page.wait_for_selector(".busy, .pending", state="detached")


def until(page, expression):
    """Wait until an expression holds; the page's own policy forbids what Playwright waits with."""
    end = time.monotonic() + 900
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(30)


def views(site):
    """The address of every view, and what to do there first."""
    task = f"#/tree.db/{site.task}"
    return {
        "trees": ("", None),
        "tasks": ("#/tree.db", None),
        "tree": (task, None),
        "walk": (f"{task}?node={site.guess}", None),
        "hostile trajectory": (f"#/tree.db/{site.evil}?node={site.long}", None),
        "token": (f"{task}?node={site.guess}", lambda page: page.click(".step.action .tok >> nth=1")),
        "step": (
            f"{task}?node={site.guess}&tokens=plain",
            lambda page: page.click(".action .dots >> nth=0"),
        ),
        "effects": (f"{task}/effects", lambda page: page.click(".draws summary")),
        "scores": (f"{task}/scores", None),
        "graph": (f"{task}/graph", lambda page: page.click(".list .link >> nth=0")),
        "diff": (f"{task}/diff?at={site.guess}", None),
        "help": (task, lambda page: page.keyboard.press("?")),
        "error": ("#/none.db", None),
    }


def around(chromium, site, said, look, **options):
    """Go through all views in one tab, and keep what ``look`` finds fault with in each."""
    found = {}
    with opened(chromium, site.address, said, **options) as page:
        for name, (place, act) in views(site).items():
            page.goto(site.address + place)
            ready(page)
            if act is not None:
                act(page)
                ready(page)
            if faults := look(page):
                found[name] = faults
            if name == "help":
                page.keyboard.press("Escape")
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_accessible(site, theme):
    axe, said = AXE.read_bytes(), []
    assert hashlib.sha256(axe).hexdigest() == AXE_SHA256

    def check(page):
        if page.evaluate("typeof axe") == "undefined":
            page.evaluate(axe.decode())
        return page.evaluate(CHECK)

    found = browser.in_browser(lambda chromium: around(chromium, site, said, check, color_scheme=theme))
    assert found == {}
    assert [one for one in said if "400" not in one] == []  # "error" asks for a tree that is not there


def test_every_view_fits_a_narrow_window(site):
    said = []

    def look(chromium):
        return around(chromium, site, said, lambda page: not page.evaluate(FITS), viewport=NARROW)

    assert browser.in_browser(look) == {}


def test_hostile_texts_are_shown_and_do_nothing(site):
    said = []

    def look(chromium):
        with opened(chromium, f"{site.address}#/tree.db/{site.evil}?node={site.long}", said) as page:
            ready(page)
            page.wait_for_selector(".step.task .plain-text")
            text = page.inner_text(".step.task .plain-text")
            page.wait_for_selector("text=show more of 1,000,000 characters")
            before = page.evaluate("document.querySelector('.action .plain-text').textContent.length")
            page.click("text=show more of 1,000,000 characters")
            until(page, "document.querySelector('.action .plain-text').textContent.length > 20000")
            return text, before, page.evaluate("[window.hacked, document.images.length]"), page.title()

    text, before, hacked, title = browser.in_browser(look)
    assert "<script>window.hacked = 1</script><img src=x" in text
    assert "\u202e" not in text
    assert "\ufffdgnp.exe\ufffd" in text
    assert "␀␛[31m{{7*7}} ${window.hacked = 3}" in text
    assert (before, hacked, title) == (20_000, [None, 0], "Tree · tree.db · Refork")
    assert said == []


def test_by_keys_alone(site):
    said = []

    def walk(chromium):
        with opened(chromium, f"{site.address}#/tree.db/{site.task}", said) as page:
            ready(page)
            page.focus(".lines")
            lines = page.locator(".line").count()
            page.keyboard.press("ArrowLeft")  # closes the task's fork
            until(page, f"document.querySelectorAll('.line').length < {lines}")
            closed = page.get_attribute(".line.current", "aria-expanded")
            page.keyboard.press("ArrowRight")
            until(page, f"document.querySelectorAll('.line').length === {lines}")
            for _ in range(3):
                page.keyboard.press("j")
            page.keyboard.press("Enter")
            page.wait_for_selector(".step.action .tokens")
            chosen = page.get_attribute(".line.chosen", "aria-selected")
            page.focus(".step.action .tokens")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("Enter")
            page.wait_for_selector(".panel:focus-within")
            panel = page.inner_text(".panel h3")
            page.keyboard.press("Escape")
            page.wait_for_selector(".panel", state="detached")
            focused = page.evaluate("document.activeElement.className")
            page.keyboard.press("c")
            page.wait_for_selector(".step.action .tok.h0, .step.action .tok[class*=' h']")
            page.keyboard.press("2")
            page.wait_for_selector("h1:text('Merged states')")
            page.keyboard.press("u")
            page.wait_for_selector("h1:text('tree.db')")
            return closed, chosen, panel, focused

    closed, chosen, panel, focused = browser.in_browser(walk)
    assert (closed, chosen, focused) == ("false", "true", "tokens")
    assert panel.startswith("Token “")
    assert said == []


def test_search_and_filters(site):
    said = []

    def look(chromium):
        with opened(chromium, f"{site.address}#/tree.db/{site.task}", said) as page:
            ready(page)
            page.keyboard.press("/")
            page.keyboard.type("guess")
            page.wait_for_selector(".found:has-text(' in ')")
            page.keyboard.press("Enter")
            page.wait_for_selector(".line.current.hit")
            told = page.inner_text(".found")
            page.goto(f"{site.address}#/tree.db")
            ready(page)
            page.fill("#search", "WELL")
            page.wait_for_selector("p:has-text('1 of 2 tasks')")
            return told, page.locator(".tasks tbody tr").count()

    told, rows = browser.in_browser(look)
    assert told.split()[0].isdigit()
    assert rows == 1
    assert said == []


def test_a_fork_from_the_page(site):
    said = []

    def fork(chromium):
        with opened(chromium, f"{site.address}#/tree.db/{site.task}?node={site.guess}", said) as page:
            page.click(".step.action .tok >> nth=0")
            page.select_option(".fork select", "replace")
            page.fill(".fork input[type=text]", " think")
            page.fill(".fork .short input >> nth=0", "40")
            page.click("text=Draw 40")
            page.wait_for_selector(".fork .progress [role=status]:has-text('done')")
            page.wait_for_selector(".fork .effect .draws")
            sentence = page.inner_text(".fork .effect h3")
            page.wait_for_selector(".foot a:has-text('3 arms')")  # the page saw the tree grow
            page.click("nav[aria-label=Views] a:has-text('Effects')")
            page.wait_for_selector("p:has-text('2 effects')")
            return sentence

    sentence = browser.in_browser(fork)
    assert sentence.startswith("'replace 1 token(s)' raises success from")
    assert said == []


def test_a_tree_that_grows_is_followed(site, tmp_path):
    said = []

    def watch(chromium):
        with opened(chromium, f"{site.address}#/again.db/{site.evil}", said) as page:
            ready(page)
            with Tree.open(site.file.parent / "again.db") as tree:
                tree.append(NewNode(kind="action", parent=site.evil, key="new", text="a new branch"))
            page.wait_for_selector(".line:has-text('a new branch')")
            return page.locator(".line").count()

    assert browser.in_browser(watch) == 3
    assert said == []


def test_a_shared_file_works_without_a_server(told, tmp_path):
    said = []
    file = tmp_path / "shared.html"
    export_page(Shelf([told.file]), file)

    def look(chromium):
        with opened(
            chromium, f"{file.as_uri()}#/tree.db/{told.task}?node={told.guess}", said, offline=True
        ) as page:
            page.wait_for_selector(".step.action .tok")
            page.fill("#search", "right")
            page.wait_for_selector(".found:has-text(' in ')")
            page.click(".step.action .tok >> nth=0")
            page.wait_for_selector(".panel:has-text('This is a shared file')")
            seen = []
            for name in ("Graph", "Effects", "Scores"):
                page.click(f"nav[aria-label=Views] a:has-text('{name}')")
                ready(page)
                seen.append((page.inner_text("h1"), page.locator(".notice.error").count()))
            page.goto(f"{file.as_uri()}#/tree.db/{told.task}/diff?at={told.guess}")
            page.wait_for_selector(".rung del, .rung ins")
            page.goto(f"{file.as_uri()}#/tree.db/{told.evil}?node={told.long}")
            page.wait_for_selector("text=the rest of this step is not in this file")
            return seen, page.evaluate("window.hacked ?? null")

    seen, hacked = browser.in_browser(look)
    assert seen == [("Merged states", 0), ("Effects", 0), ("Versions of a score", 0)]
    assert hacked is None
    assert said == []


def test_an_imported_log_can_be_forked_from_its_walk(tmp_path):
    """Tokens without log-probs are tokens to choose; a text without token ids says where forks begin."""
    said: list[str] = []
    rows = [
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": " think right"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": " guess wrong"},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": rows}) + "\n")
    for name, reader in (("ids.db", OpenAIChat(policy())), ("texts.db", OpenAIChat())):
        with Tree.open(tmp_path / name) as tree:
            tree.load(reader.read(log))
            task = next(tree.tasks()).id
            last = next(iter(tree.leaves())).id
            if name == "ids.db":
                first = next(node for node in tree.walk() if node.kind == "action")
                fork(tree.at(first, 1), policy(), 4, judge=MatchJudge("right"))
            else:
                texts = (task, last)
        if name == "ids.db":
            ids = (task, last)
    shelf = Shelf([tmp_path])
    actor = ForkSetup(policy(), lambda trajectory: None, MatchJudge("right"), "script")

    def look(chromium, address):
        with opened(chromium, f"{address}#/ids.db/{ids[0]}?node={ids[1]}", said) as page:
            ready(page)
            page.wait_for_selector(".step.action .tok")
            page.click(".step.action .tok >> nth=1")
            page.wait_for_selector(".panel:focus-within")
            token = page.inner_text(".panel h3")
            page.keyboard.press("Escape")
            inside = page.locator(".line:has(small.keep)").first
            inside.click()
            # The trajectory chosen before, of four steps, stays in sight until the chosen one has been read.
            until(page, "document.querySelectorAll('.step').length === 3")
            page.wait_for_selector(".step.action >> nth=1 >> .tok")
            line, steps = inside.inner_text(), page.locator(".step").all_inner_texts()
        with opened(chromium, f"{address}#/texts.db/{texts[0]}?node={texts[1]}", said) as page:
            ready(page)
            page.wait_for_selector(".step.action .fork-place")
            why = page.inner_text(".step.action .fork-place")
            page.click(".step.action .fork-place button >> nth=0")
            page.wait_for_selector(".step.task .panel:focus-within")
            page.select_option(".panel .fork select", "none")
            page.fill(".panel .fork .short input >> nth=0", "4")
            page.click("text=Draw 4")
            page.wait_for_selector(".fork [role=status]:has-text('done')")
            return token, line, steps, why

    with viewing(shelf, Forking(actor, shelf.file)) as address:
        token, line, steps, why = browser.in_browser(lambda chromium: look(chromium, address))
    assert token == "Token “ right”"
    assert "right" in line or "wrong" in line
    assert len(steps) == 3
    assert " think right" in steps[1]
    assert "right" in steps[2] or "wrong" in steps[2]
    assert "no token ids are recorded" in why
    assert said == []
