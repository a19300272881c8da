"""The page of a study in real Chromium: a scripted participant who reads, presses keys, reloads and waits."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.gambles.experiment import GambleExperiment
from refork_methods.theory.people import Completion, Study, read_results
from refork_methods.theory.people.page_files import export
from refork_worlds.web import browser

WHY = browser.missing()
pytestmark = pytest.mark.skipif(WHY is not None, reason=WHY or "")
CUES = CueExperiment.of([0.9, 0.8, 0.7], [[1, 0, 0], [0, 1, 1], [1, 1, 0]], [[0, 1, 1], [1, 0, 0], [0, 0, 1]])
GAMBLES = GambleExperiment.of([([(0, 0.3), (40, 0.7)], [(25, 1.0)]), ([(-10, 0.5), (35, 0.5)], [(2.5, 1.0)])])
FOCUS = """() => {
  const at = document.activeElement;
  return [at.textContent, getComputedStyle(at).outlineStyle, at.id];
}"""
#: Leave the window for 0.3 s.
AWAY = """async () => {
  window.dispatchEvent(new Event('blur'));
  await new Promise((done) => setTimeout(done, 310));
  window.dispatchEvent(new Event('focus'));
}"""
#: Whether everything fits the width, and what can be pressed is large enough for a finger.
FITS = """() => document.documentElement.scrollWidth <= innerWidth
  && [...document.querySelectorAll('button, a')].filter((one) => one.offsetParent)
    .every((one) => one.getBoundingClientRect().height >= 44)"""


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    browser.close()


@contextmanager
def opened(chromium, said, **options):
    """A fresh visitor's tab; whatever its console complains of is put into ``said``."""
    context = chromium.new_context(locale="en-US", reduced_motion="reduce", **options)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda told: said.append(told.text) if told.type in ("error", "warning") else None)
    try:
        yield page
    finally:
        context.close()


def press(page, label):
    """Tab to what has a label, see that it is marked, and press Enter: no mouse."""
    for _ in range(12):
        page.keyboard.press("Tab")
        text, outline, _ = page.evaluate(FOCUS)
        if text == label:
            assert outline == "solid"
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"the Tab key does not reach {label!r}")


def choice(page, number, total):
    """Wait for a pair; what the page says of it, as cells of text."""
    page.wait_for_selector(f"text=Choice {number} of {total}")
    return [one.strip() for one in page.locator("td, dt, dd").all_inner_texts()]


class Server:
    """``refork theory serve`` in a process of its own, that may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self.start()

    def start(self) -> None:
        log = self.folder / "log"
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from refork.cli import main; main()", "theory", "serve",
                 str(self.folder / "pairs.json"), "--out", str(self.folder / "r.jsonl"), "--trials", "6",
                 "--completion-code", "ALL1", "--port", str(self.port)],
                stderr=stream, start_new_session=True,
            )  # fmt: skip
        for _ in range(1200):
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", log.read_text())
            if found:
                self.port = int(found[1])
                return
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_by_keyboard_alone_through_a_reload_and_a_killed_server(tmp_path):
    """kill -9 while an answer is on its way: the page keeps it, the file holds each answer once."""
    (tmp_path / "pairs.json").write_text(json.dumps(CUES.to_json()))
    server, said, pressed = Server(tmp_path), [], []

    def visit(chromium):
        with opened(chromium, said) as page:
            page.goto(f"http://127.0.0.1:{server.port}/?PROLIFIC_PID=5f2b&STUDY_ID=s&SESSION_ID=v")
            page.wait_for_selector("h1")
            press(page, "I agree, begin")
            page.wait_for_selector(".example")
            press(page, "Next")
            press(page, "Start")
            for number in range(1, 7):
                choice(page, number, 6)
                if number == 3:
                    page.reload()
                    page.wait_for_selector("text=You have made 2 of 6 choices")
                    press(page, "Go on")
                    choice(page, 3, 6)
                if number == 5:
                    server.kill()
                key = ["f", "j", "ArrowLeft", "ArrowRight", "j", "F"][number - 1]
                pressed.append(key)
                page.keyboard.press(key)
                if number == 5:
                    page.wait_for_selector("text=The connection is interrupted")
                    page.keyboard.press("f")  # another key meanwhile is no second answer
                    server.start()
            page.wait_for_selector("text=ALL1")
            assert page.locator("#banner").is_hidden()
            link = page.get_by_role("link").get_attribute("href")
            assert link == "https://app.prolific.com/submissions/complete?cc=ALL1"
            page.reload()
            page.wait_for_selector("text=ALL1")

    try:
        browser.in_browser(visit)
    finally:
        server.kill()
    (person,) = read_results(tmp_path / "r.jsonl").people
    assert person.status == "ended"
    assert [one.response for one in person.answers] == [0, 1, 0, 1, 1, 0]
    assert [one.stimulus for one in person.answers] == Study.of(CUES, trials=6).order(0)
    assert {one.by for one in person.answers} == {"key"}
    assert person.bot == ("webdriver",)  # the scripted participant is what it is
    assert all(
        "ERR_CONNECTION_REFUSED" in one or "ERR_EMPTY" in one or "ERR_CONNECTION_RESET" in one for one in said
    ), said


def test_without_a_server_on_a_phone_by_touch(tmp_path):
    """The exported folder, opened as files: nothing else is loaded, and what is saved reads back."""
    export(Study.of(GAMBLES, trials=4, completion=Completion(None)), tmp_path / "page")
    said, asked = [], []
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}

    def visit(chromium):
        with opened(chromium, said, **phone, color_scheme="dark") as page:
            page.on("request", lambda request: asked.append(request.url))
            page.goto((tmp_path / "page" / "index.html").as_uri())
            for label in ("I agree, begin", "Next", "Start"):
                assert page.evaluate(FITS), label
                page.get_by_role("button", name=label).tap()
            for number in range(1, 5):
                cells = choice(page, number, 4)
                assert ("win 25" in cells) != ("lose 10" in cells)
                assert page.evaluate(FITS)
                if number == 2:
                    page.reload()
                    page.get_by_role("button", name="Go on", exact=True).tap()
                    assert choice(page, 2, 4) == cells
                page.get_by_role("button", name="Choose B" if "win 25" in cells else "Choose A").tap()
            with page.expect_download() as saving:
                page.get_by_role("button", name="Save my answers").tap()
            assert page.evaluate(FITS)
            saving.value.save_as(tmp_path / "saved.json")

    browser.in_browser(visit)
    (person,) = read_results(tmp_path / "saved.json").people
    assert all(one.response == (1 if one.stimulus == 0 else 0) for one in person.answers)
    assert sorted(person.order) == [0, 0, 1, 1]
    assert {one.by for one in person.answers} == {"button"}
    assert said == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}


def test_declining_records_nothing_and_withdrawing_forgets(tmp_path):
    export(Study.of(CUES, trials=3), tmp_path / "page")
    address = (tmp_path / "page" / "index.html").as_uri()

    def visit(chromium):
        with opened(chromium, []) as page:
            page.goto(address)
            page.wait_for_selector("h1")
            press(page, "I do not agree")
            page.wait_for_selector("text=Nothing was recorded")
            assert page.evaluate("Object.keys(localStorage).filter((one) => one.endsWith('entries'))") == []
            page.goto(f"{address}?participant=7")
            page.wait_for_selector("h1")
            press(page, "I agree, begin")
            page.wait_for_selector(".example")
            press(page, "Next")
            press(page, "Start")
            choice(page, 1, 3)
            page.keyboard.press("f")
            choice(page, 2, 3)
            press(page, "Stop and withdraw")
            page.keyboard.press("j")  # behind the question no choice is made
            press(page, "Yes, withdraw")
            page.wait_for_selector("text=You have withdrawn")
            kept = page.evaluate("Object.entries(localStorage).find(([key]) => key.endsWith(':entries'))[1]")
            assert [one["kind"] for one in json.loads(kept)] == ["begin", "withdraw"]
            page.reload()
            page.wait_for_selector("text=You have withdrawn")

    browser.in_browser(visit)


def test_a_page_without_a_server_sends_the_answers_or_has_them_saved(tmp_path):
    """The collector fails once, then takes them; another refuses them, and the person saves a file."""
    sent = []

    def collect(route):
        sent.append(route.request.post_data)
        route.fulfill(status=503 if len(sent) == 1 else 200, headers={"access-control-allow-origin": "*"})

    def visit(chromium):
        for name in ("taken", "refused"):
            post = f"http://localhost:9/{name}"
            export(Study.of(GAMBLES, trials=2, post=post), tmp_path / name)
            with opened(chromium, []) as page:
                page.route("http://localhost:9/taken", collect)
                page.route("http://localhost:9/refused", lambda route: route.fulfill(status=403))
                page.goto((tmp_path / name / "index.html").as_uri())
                page.evaluate("() => { document.querySelector('.trap').value = 'x'; }")
                for label in ("I agree, begin", "Next", "Start"):
                    page.get_by_role("button", name=label).click()
                choice(page, 1, 2)
                page.evaluate("() => document.dispatchEvent(new KeyboardEvent('keydown', {key: 'j'}))")
                choice(page, 2, 2)
                page.evaluate(AWAY)
                page.keyboard.press("j")
                page.wait_for_selector(".code")
                assert page.get_by_role("button", name="Save my answers").count() == (name == "refused")

    browser.in_browser(visit)
    assert len(sent) == 2
    (tmp_path / "sent.json").write_text(sent[1])
    (person,) = read_results(tmp_path / "sent.json").people
    assert (person.status, [one.response for one in person.answers]) == ("ended", [1, 1])
    assert person.bot == ("webdriver", "trap", "untrusted")
    assert person.answers[0].away_ms == 0
    assert person.quality_session().away_s >= 0.3
