"""``miniwob:TASK``: MiniWoB++'s pages in the web world's headless Chromium, exact to fork.

A task is a seed for the page's own generator; held-out tasks use the page's own ``test`` mode where it has
one. The task in words and every element stand in each observation; actions are those of
:data:`~refork_worlds.miniwob.SPACE`. The reward is the page's own, before any penalty
for time, from -1 to 1; the limit is a number of turns, at which the page's own time-out is given (-1).

Options: ``turns``; ``pace``, milliseconds of the page's time that an action takes; ``boxes``, the position of
every element and not only of shapes; ``html``, the folder of the pages (default: the package's);
``chromium``. The page's clock and chance are ours, so the same actions always meet the same answers; there
are no snapshots, a fork replays and checks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from hashlib import blake2b
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork.worlds.spec import Spec
from refork_worlds.screens.actions import action_in
from refork_worlds.screens.device import DONE, INVALID, NOT_DONE
from refork_worlds.screens.elements import word
from refork_worlds.web import actions as web
from refork_worlds.web.browser import in_browser
from refork_worlds.web.page import Tab

_TURNS: Final = 10
_PACE: Final = 1000
_LONGEST_PACE: Final = 60_000
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "turns": int,
    "pace": int,
    "boxes": bool,
    "html": str,
    "chromium": str,
}
_USED = re.compile(r"""(?:src|href)=["']([^"'?#]+)["']""")


@final
class MiniwobEpisode:
    """One live page."""

    def __init__(self, world: MiniwobWorld, task: Task) -> None:
        self.task = task
        self._world = world
        self._page: MiniwobPage | None = None
        self._first: Observation | None = None
        self._last: Observation | None = None
        self._text = ""
        self._turn = 0

    @property
    def first(self) -> Observation:
        """The page before any action; it is opened when it is first needed."""
        if self._first is None:
            in_browser(self._begin, self._world.chromium)
            self._first = Observation(self._text, self._key())
        return self._first

    def _begin(self, browser: Any) -> None:
        from playwright.sync_api import Error

        world, data = self._world, self.task.data
        try:
            self._page = MiniwobPage(
                browser, world.html, world.page, int(data["page_seed"]), str(data["mode"]), world.pace
            )
            self._text = self._page.see(world.boxes)
        except Error as error:
            first = str(error).partition("\n")[0]
            raise CannotDo(f"the page cannot be opened: {first}", where=f"task {self.task.id}") from error

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self._last is not None and self._last.done:
            return self._last
        _ = self.first
        wish = parse(action)
        self._turn += 1
        self._last = in_browser(lambda _: self._answered(wish), self._world.chromium)
        return self._last

    def _answered(self, wish: Act | None) -> Observation:
        """The observation that follows an action; in the browser's thread."""
        from playwright.sync_api import Error

        page, info = self._page, Json()
        if page is None:
            raise CannotDo("the episode is closed", where=f"task {self.task.id}")
        why = "not an action"
        if wish is not None:
            try:
                why = page.act(wish)
            except Error as error:
                why = str(error).partition("\n")[0]
        if why:
            info |= {"invalid": True, "why": why}
        now = page.status()
        if not now.done and self._turn >= self._world.turns:
            now = page.time_out()
        if not now.done:
            self._text = page.see(self._world.boxes)
            text = f"{INVALID}\n{self._text}" if why else self._text
            return Observation(text, self._key(), info=info)
        if now.reason:
            info["reason"] = now.reason
        self._text = DONE if now.raw >= 1.0 else NOT_DONE
        return Observation(self._text, self._key(), True, now.raw, info)

    def _key(self) -> str:
        return digest("miniwob", self.task.id, self._text)

    def picture(self) -> bytes:
        """The page as PNG, to compare with what its text says."""
        _ = self.first
        page = self._page
        return b"" if page is None else in_browser(lambda _: page.picture(), self._world.chromium)

    def snapshot(self) -> None:
        """None: a browser's state cannot be put back exactly."""
        return

    def reseed(self, seed: int) -> None:
        """There is no chance but the page's own, which is part of the task."""

    def close(self) -> None:
        """Close the page."""
        page, self._page = self._page, None
        if page is not None:
            in_browser(lambda _: page.close(), self._world.chromium)


@final
@dataclass(frozen=True)
class MiniwobWorld:
    """One of MiniWoB++'s pages; ``html`` is the folder that holds ``miniwob/`` and ``core/``."""

    task: str
    html: Path
    turns: int = _TURNS
    pace: int = _PACE
    boxes: bool = False
    chromium: str | None = None
    query: str = ""

    deterministic = True

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"miniwob:{self.task}" + (f"?{self.query}" if self.query else "")

    @property
    def page(self) -> str:
        """The page's place in the folder."""
        return f"miniwob/{self.task}.html"

    @property
    def version(self) -> str:
        """Changes with the page and the scripts and styles that it names."""
        return f"2+{_contents(self.html, self.page)}"

    @property
    def max_turns(self) -> int:
        """Turns after which a run counts as failed."""
        return self.turns

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeds of the page; the seed alone decides the split.

        So a page that always looks alike has tasks that differ in nothing else, in both splits.
        """
        dice, found = Dice("miniwob", self.task, seed), dict[int, Task]()
        while len(found) < count:
            drawn = dice.below(2**31)
            if drawn in found or split_of(digest("miniwob", drawn)) != split:
                continue
            mode = "train" if split == "train" else "test"
            data: Json = {"task": self.task, "page_seed": drawn, "mode": mode}
            found[drawn] = Task(f"miniwob:{self.task}/{drawn}", self.name, split, f"actions:\n{SPACE}", data)
        return list(found.values())

    def start(self, task: Task, seed: int) -> MiniwobEpisode:
        """Begin; the page is opened when it is first needed."""
        del seed
        need(task.data, ("task", "page_seed", "mode"), self.name)
        if task.data["task"] != self.task:
            raise BadInput(f"this task is of {task.data['task']}", where=self.name)
        if type(task.data["page_seed"]) is not int or task.data["mode"] not in ("train", "test"):
            raise BadInput("a task has a page_seed (a number) and a mode (train or test)", where=self.name)
        return MiniwobEpisode(self, task)

    def restore(self, task: Task, snapshot: bytes) -> MiniwobEpisode:
        """A browser cannot be put back; raises CannotDo."""
        del snapshot
        raise CannotDo(
            "a browser's state cannot be restored", where=f"task {task.id}", hint="replay the actions"
        )


@lru_cache(maxsize=256)
def _contents(html: Path, page: str) -> str:
    """A digest of a page and of the files that it names."""
    mark = blake2b(digest_size=6)
    path = html / page
    text = path.read_bytes()
    mark.update(text)
    for used in sorted(set(_USED.findall(text.decode("utf-8", "replace")))):
        file = path.parent / used
        if file.is_file():
            mark.update(file.read_bytes())
    return mark.hexdigest()


def _folder(given: str | None) -> Path:
    """Where the pages lie: the given folder, else the package's, which is not imported.

    Raises:
        BadInput: the folder holds no pages.
        MissingExtra: the package miniwob is not installed.
    """
    if given is None:
        package = find_spec("miniwob")
        places = list(package.submodule_search_locations or []) if package else []
        if not places:
            raise MissingExtra("miniwob", "miniwob")
        return Path(places[0]) / "html"
    folder = Path(given)
    if not (folder / "core" / "core.js").is_file():
        raise BadInput(
            "there are no MiniWoB pages in this folder",
            where=given,
            hint="it holds core/core.js and miniwob/",
        )
    return folder


def open_miniwob(spec: Spec) -> MiniwobWorld:
    """``miniwob:TASK``: MiniWoB++'s pages in headless Chromium as element lists (turns, pace, boxes, html).

    A missing browser is said when a page is opened.

    Raises:
        BadInput: an unknown page or option.
        MissingExtra: the pages are not installed.
    """
    given = spec.take(_OPTIONS)
    if "chromium" in given:
        spec.typed("a browser")
    turns, pace = int(given.get("turns", _TURNS)), int(given.get("pace", _PACE))
    if turns < 1:
        raise BadInput(f"turns is {turns}; it must be at least 1", where="miniwob")
    if not 0 <= pace <= _LONGEST_PACE:
        raise BadInput(f"pace is {pace}; it must be 0 to {_LONGEST_PACE} milliseconds", where="miniwob")
    html = _folder(given.get("html"))
    known = sorted(path.stem for path in (html / "miniwob").glob("*.html"))
    if spec.argument not in known:
        close = get_close_matches(spec.argument, known, 4) or known[:4]
        hint = f"for example {', '.join(close)}; there are {len(known)}"
        raise BadInput(f"MiniWoB has no page {spec.argument!r}", where=str(html / "miniwob"), hint=hint)
    return MiniwobWorld(
        spec.argument, html, turns, pace, bool(given.get("boxes", False)), given.get("chromium"), spec.query
    )


# A MiniWoB page in the web world's browser: its clock stands still but for us, its chance is seeded.
#
# The page's clock (``Date``, timers, animation frames) is Playwright's: it moves by a fixed time after each
# action, however long the browser took. ``Math.random`` is seeded before the page's own scripts run, and
# again by the page's own ``Math.seedrandom``; transitions of style, which keep the browser's own time, are
# off. Only to be used in the browser's thread.


#: Seconds since 1970, a day before every page begins: 2020-01-01.
_EPOCH: Final = 1577836800
#: Milliseconds after which MiniWoB ends an episode itself: turns are counted instead.
_NEVER: Final = 1_000_000_000
#: Milliseconds that a page has to draw its problem.
_DRAW: Final = 1000
#: A number of frames (16 ms each) that is longer than a browser takes to start.
_ROUND: Final = 16_000
#: How often to look whether a page is there, and how long to wait in between (ms).
_PATIENCE: Final = 2000
_BREATH: Final = 5
_MARK: Final = "data-refork-ref"
#: How far a page is, once the tasks that wait in it ran: one of them may leave the page.
_READY: Final = """() => new Promise((told) => {
  const { port1, port2 } = new MessageChannel();
  let left = 3;
  port1.onmessage = () => --left ? port2.postMessage(0) : told(document.readyState);
  port2.postMessage(0);
})"""
_STILL: Final = """
{ let state = %d >>> 0;
  Math.random = () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  document.addEventListener('DOMContentLoaded', () => {
    const still = document.createElement('style');
    still.textContent = '*,*::before,*::after{transition:none!important;animation:none!important}';
    document.head.append(still);
  });
}
"""
_BEGIN: Final = """([seed, mode, never]) => {
  core.EPISODE_MAX_TIME = never;
  if (Math.seedrandom) Math.seedrandom(seed);
  core.setDataMode(mode);
  core.startEpisodeReal();
}"""
_STATUS: Final = """() => typeof WOB_DONE_GLOBAL === 'undefined' ? {
  done: true, raw: -1, reason: 'left the page',
} : ({
  done: WOB_DONE_GLOBAL,
  raw: WOB_RAW_REWARD_GLOBAL,
  reason: WOB_REWARD_REASON == null ? null : String(WOB_REWARD_REASON),
})"""
_TIME_OUT: Final = "() => core.endEpisode(-1, false, 'timed out')"
#: Every element that says or is something, in the order of the page; each is marked with its number.
_ELEMENTS: Final = """([mark, boxes]) => {
  const skip = new Set(['reward-display', 'sync-task-cover', 'click-canvas', 'query']);
  const mute = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'BR', 'HR', 'OPTION',
    'defs', 'title', 'desc', 'clipPath', 'marker', 'linearGradient', 'radialGradient']);
  const inline = new Set(['B', 'I', 'U', 'EM', 'STRONG', 'BR', 'SUB', 'SUP', 'SMALL', 'FONT', 'tspan']);
  const whole = new Set(['BUTTON', 'A', 'H1', 'H2', 'H3', 'H4', 'H5', 'H6', 'text']);
  const inputs = {text: 'textbox', password: 'textbox', email: 'textbox', search: 'textbox', tel: 'textbox',
    url: 'textbox', button: 'button', submit: 'button', reset: 'button', number: 'spinbutton',
    range: 'slider'};
  const tags = {A: 'link', BUTTON: 'button', TEXTAREA: 'textbox', IMG: 'image'};
  const tidy = (text) => (text || '').replace(/\\s+/g, ' ').trim();
  document.querySelectorAll(`[${mark}]`).forEach((one) => one.removeAttribute(mark));
  const found = [];
  const role = (el) => {
    if (el.tagName === 'INPUT') return inputs[el.type] || el.type;
    if (el.tagName === 'SELECT') return el.multiple || el.size > 1 ? 'listbox' : 'combobox';
    if (/^H[1-6]$/.test(el.tagName)) return 'heading';
    return tags[el.tagName] || el.tagName.toLowerCase();
  };
  const labels = (el) => [...(el.labels || [])].map((one) => one.innerText).join(' ');
  const said = (el) => {
    if (el.type === 'submit' || el.type === 'button') return tidy(el.innerText || el.value);
    return tidy(el.getAttribute('aria-label') || labels(el) || el.placeholder || el.alt ||
      (el.getAttribute('title') || ''));
  };
  const put = (el, name, control) => {
    const one = {role: role(el), name, states: []};
    const box = el.getBoundingClientRect();
    if (el.tagName === 'SELECT') {
      one.choices = [...el.options].map((o) => tidy(o.label));
      one.value = [...el.selectedOptions].map((o) => tidy(o.label)).join(' , ');
    } else if (['checkbox', 'radio'].includes(el.type)) {
      if (el.checked) one.states.push('checked');
    } else if (control && !['BUTTON'].includes(el.tagName) && !['submit', 'button'].includes(el.type)) {
      one.value = el.value;
    }
    if (el.disabled) one.states.push('disabled');
    if (el.readOnly) one.states.push('readonly');
    if (el === document.activeElement) one.states.push('focused');
    const style = getComputedStyle(el), drawn = el instanceof SVGElement;
    if (!name && !one.choices) {
      one.id = el.id;
      one.kind = tidy(el.getAttribute('class'));
    }
    if (drawn && style.fill !== 'none') one.colour = style.fill;
    else if (!drawn && !name && !control && style.backgroundColor !== 'rgba(0, 0, 0, 0)') {
      one.colour = style.backgroundColor;
    }
    if (boxes || drawn || (!name && !control)) {
      one.at = [box.left + box.width / 2, box.top + box.height / 2, box.width, box.height].map(Math.round);
    }
    el.setAttribute(mark, String(found.push(one)));
  };
  const walk = (el) => {
    if (skip.has(el.id) || mute.has(el.tagName)) return;
    if (el.checkVisibility && !el.checkVisibility({visibilityProperty: true})) return;
    const box = el.getBoundingClientRect();
    const seen = box.width > 0 && box.height > 0 || (el instanceof SVGElement && box.width + box.height > 0);
    const control = ['INPUT', 'TEXTAREA', 'SELECT', 'BUTTON'].includes(el.tagName);
    if (control) {
      if (seen) put(el, said(el) || (el.tagName === 'BUTTON' ? tidy(el.textContent) : ''), true);
      return;
    }
    if (el.tagName === 'LABEL' && el.control) {
      [...el.children].forEach(walk);
      return;
    }
    const texts = [...el.childNodes].filter((one) => one.nodeType === 3).map((one) => one.data).join(' ');
    const plain = [...el.querySelectorAll('*')].every((one) => inline.has(one.tagName));
    if (seen && (whole.has(el.tagName) || (tidy(texts) && plain))) {
      put(el, tidy(el.innerText === undefined ? el.textContent : el.innerText), false);
      return;
    }
    if (seen && tidy(texts)) put(el, tidy(texts), false);
    else if (seen && !el.children.length && el !== document.body) put(el, said(el), false);
    [...el.children].forEach(walk);
  };
  walk(document.body);
  return [tidy((document.getElementById('query') || {}).innerText), found];
}"""
#: A pixel of an element that nothing covers, the middle first; null where there is none.
_POINT: Final = """([mark, ref]) => {
  const el = document.querySelector(`[${mark}="${ref}"]`);
  if (!el) return null;
  el.scrollIntoView({block: 'nearest', inline: 'nearest'});
  for (const box of [el.getBoundingClientRect(), ...el.getClientRects()]) {
    for (const down of [0.5, 0.25, 0.75, 0.05, 0.95]) for (const over of [0.5, 0.25, 0.75, 0.05, 0.95]) {
      const x = box.left + box.width * over, y = box.top + box.height * down;
      const hit = document.elementFromPoint(x, y);
      if (hit && (hit === el || el.contains(hit))) return [x, y];
    }
  }
  return null;
}"""
#: Give a field a value that is picked, not typed (a date, a colour); in a field of words select what it has.
_PICK: Final = """([mark, ref, text]) => {
  const el = document.querySelector(`[${mark}="${ref}"]`);
  const picked = ['date', 'time', 'datetime-local', 'month', 'week', 'color', 'range'];
  if (el.tagName !== 'INPUT' || !picked.includes(el.type)) {
    if (!el.select || !el.value) return '';
    el.select();
    return 'selected';
  }
  el.value = text;
  for (const kind of ['input', 'change']) el.dispatchEvent(new Event(kind, {bubbles: true}));
  return 'picked';
}"""
_SELECT: Final = """([mark, ref, text]) => {
  const el = document.querySelector(`[${mark}="${ref}"]`);
  if (!el || el.tagName !== 'SELECT') return 'not a list';
  const tidy = (one) => one.replace(/\\s+/g, ' ').trim();
  const wanted = [...el.options].find((one) => tidy(one.label) === text);
  if (!wanted) return 'no such option';
  if (el.multiple) wanted.selected = true; else el.value = wanted.value;
  if (!wanted.selected) wanted.selected = true;
  for (const kind of ['input', 'change']) el.dispatchEvent(new Event(kind, {bubbles: true}));
  return '';
}"""
_SCROLL_SCRIPT: Final = """([mark, ref, way]) => {
  let el = document.querySelector(`[${mark}="${ref}"]`);
  while (el && el.scrollHeight <= el.clientHeight) el = el.parentElement;
  (el || window).scrollBy(0, (way === 'up' ? -1 : 1) * Math.max(40, (el ? el.clientHeight : 200) * 0.8));
}"""


@final
@dataclass(frozen=True, slots=True)
class Status:
    """Whether the page has ended its episode, with which reward (before any penalty for time), and why."""

    done: bool
    raw: float
    reason: str | None


@final
class MiniwobPage:
    """One page with its problem drawn; ``pace`` is how many milliseconds of its time an action takes."""

    def __init__(self, browser: Any, html: Path, page: str, seed: int, mode: str, pace: int) -> None:
        self._tab = Tab(browser, html, "about:blank")
        self._pace = pace
        inside = self._tab.page
        session = inside.context.new_cdp_session(inside)
        session.send("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        # Until it is stopped the clock runs; stopped far ahead, it stands where no slow machine has passed.
        inside.clock.install(time=_EPOCH)
        inside.clock.pause_at(_EPOCH + 86400)
        inside.add_init_script(_STILL % (seed & 0xFFFFFFFF))
        self._leaving = False
        inside.on("request", self._leave)
        inside.on("response", self._heard)
        inside.on("requestfailed", self._stay)
        inside.on("load", self._arrive)
        self._tab.open(page)
        # What the browser took until the clock stood decides when its frames come: on to a round time.
        inside.clock.fast_forward(_ROUND - int(inside.evaluate("performance.now()")) % _ROUND)
        inside.clock.set_system_time(_EPOCH + 86400)
        inside.evaluate(_BEGIN, [str(seed), mode, _NEVER])
        inside.clock.run_for(_DRAW)

    def see(self, boxes: bool) -> str:
        """The task in words, then a line for each element."""
        query, found = self._tab.page.evaluate(_ELEMENTS, [_MARK, boxes])
        rows = [f"{number} {line(one)}" for number, one in enumerate(found, start=1)]
        said, self._tab.messages = self._tab.messages, []
        return "\n".join([*said, f"task {query}".rstrip(), *rows])

    def status(self) -> Status:
        """What the page says of its episode."""
        found = self._tab.page.evaluate(_STATUS)
        return Status(bool(found["done"]), float(found["raw"] or 0.0), found["reason"])

    def act(self, action: Act) -> str:
        """Do it and let the page's time pass; why nothing came of it, else nothing."""
        why = self._tried(action)
        self._settle()
        self._tab.page.clock.run_for(self._pace)
        self._settle()
        return why

    def time_out(self) -> Status:
        """End the episode as the page's own timer would; also a page that was loaded anew and has none."""
        self._tab.page.evaluate(_TIME_OUT)
        found = self.status()
        return found if found.done else Status(True, -1.0, "timed out")

    def _settle(self) -> None:
        """Wait until a page that is being left is there again, or another one is."""
        from playwright.sync_api import Error

        inside = self._tab.page
        for _ in range(_PATIENCE):
            try:
                if inside.evaluate(_READY) == "complete" and not self._leaving:
                    return
            except Error as error:
                if "context was destroyed" not in str(error):
                    raise
            inside.wait_for_timeout(_BREATH)

    def _leave(self, request: Any) -> None:
        self._leaving = self._leaving or request.is_navigation_request()

    def _stay(self, request: Any) -> None:
        self._leaving = self._leaving and not request.is_navigation_request()

    def _heard(self, response: Any) -> None:
        if response.status == HTTPStatus.NO_CONTENT:
            self._stay(response.request)

    def _arrive(self, _: object) -> None:
        self._leaving = False

    def picture(self) -> bytes:
        """The page as PNG."""
        return self._tab.picture()

    def close(self) -> None:
        """Close the page."""
        self._tab.close()

    def _tried(self, action: Act) -> str:
        if action.kind == "wait":
            return ""
        inside = self._tab.page
        if action.kind == "press":
            inside.keyboard.press(action.text)
            return ""
        points = [self._point(ref) for ref in action.refs]
        if None in points:
            return f"no {action.refs[points.index(None)]}"
        if action.kind == "select":
            return str(inside.evaluate(_SELECT, [_MARK, action.refs[0], action.text]))
        if action.kind == "scroll":
            inside.evaluate(_SCROLL_SCRIPT, [_MARK, action.refs[0], action.text])
            return ""
        ways = [point for point in points if point] or list(zip(action.at[::2], action.at[1::2], strict=True))
        if action.kind == "drag":
            self._drag(ways[0], ways[1])
        elif action.kind == "hover":
            inside.mouse.move(*ways[0])
        else:
            inside.mouse.click(*ways[0])
        if action.kind == "type":
            self._type(action)
        return ""

    def _type(self, action: Act) -> None:
        """Write into the element that was just clicked, in the place of what it holds."""
        inside = self._tab.page
        held = inside.evaluate(_PICK, [_MARK, action.refs[0], action.text])
        if held == "selected":
            inside.keyboard.press("Backspace")
        if held != "picked":
            inside.keyboard.type(action.text)

    def _point(self, ref: int) -> tuple[float, float] | None:
        found = self._tab.page.evaluate(_POINT, [_MARK, ref])
        return None if found is None else (float(found[0]), float(found[1]))

    def _drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Hold the mouse from here to there; in steps, for pages that follow it."""
        mouse = self._tab.page.mouse
        mouse.move(*begin)
        mouse.down()
        mouse.move(*end, steps=8)
        mouse.up()


def line(one: Json) -> str:
    """An element as the web world writes it: ``button name ok``, ``circle id c at 60 80 size 9 9``."""
    parts = [str(one["role"])]
    for key, label in (
        ("name", "name"),
        ("value", "value"),
        ("id", "id"),
        ("kind", "class"),
        ("colour", "colour"),
    ):
        if one.get(key):
            parts += [label, word(str(one[key]))]
    if one.get("choices"):
        parts += ["of", *map(word, one["choices"])]
    if one.get("at"):
        x, y, wide, high = one["at"]
        parts.append(f"at {x} {y} size {wide} {high}")
    return " ".join([*parts, *one["states"]])


# Actions on a MiniWoB page: those of the web world that one page has, and those of a mouse and a key.


SPACE: Final = (
    "click N\ntype N: WORDS\nselect N: OPTION\npress KEY\nhover N\ndrag N to M\nscroll N: down\n"
    "scroll N: up\nclick at X Y\ndrag X Y to X Y\nwait"
)
#: Keys that can be pressed. None copies or pastes: the clipboard belongs to every episode of the browser.
KEYS: Final = frozenset(
    {
        "Enter",
        "Tab",
        "Shift+Tab",
        "Escape",
        "Backspace",
        "Delete",
        "Space",
        "Home",
        "End",
        "PageUp",
        "PageDown",
    }
    | {f"{held}Arrow{way}" for held in ("", "Shift+", "Control+") for way in ("Up", "Down", "Left", "Right")}
    | {f"Control+{letter}" for letter in "abiuz"}
)
_KEYS: Final = {key.lower(): key for key in KEYS}
_REF: Final = re.compile(r"(hover)\s+(\d{1,4})", re.IGNORECASE)
_SCROLL: Final = re.compile(r"scroll\s+(\d{1,4})\s*:?\s+(up|down)", re.IGNORECASE)
_DRAG: Final = re.compile(r"drag\s+(\d{1,4})\s+to\s+(\d{1,4})", re.IGNORECASE)
_AT: Final = re.compile(r"click\s+at\s+(\d{1,4})[ ,]+(\d{1,4})", re.IGNORECASE)
_LINE: Final = re.compile(r"drag\s+(\d{1,4})[ ,]+(\d{1,4})\s+to\s+(\d{1,4})[ ,]+(\d{1,4})", re.IGNORECASE)
_PRESS: Final = re.compile(r"press\s+(\S{1,20})", re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class Act:
    """What to do, to which elements (or at which pixels), with which words."""

    kind: str
    refs: tuple[int, ...] = ()
    text: str = ""
    at: tuple[int, ...] = ()


def parse(turn: str) -> Act | None:
    """The action of a policy's turn; None where it has none that a page of one screen can take."""
    text = action_in(turn)
    if text.lower() == "wait":
        return Act("wait")
    if found := _REF.fullmatch(text):
        return Act("hover", (int(found[2]),))
    if found := _SCROLL.fullmatch(text):
        return Act("scroll", (int(found[1]),), found[2].lower())
    if found := _DRAG.fullmatch(text):
        return Act("drag", (int(found[1]), int(found[2])))
    if found := _AT.fullmatch(text):
        return Act("click", at=(int(found[1]), int(found[2])))
    if found := _LINE.fullmatch(text):
        return Act("drag", at=tuple(int(found[n]) for n in range(1, 5)))
    if found := _PRESS.fullmatch(text):
        key = _KEYS.get(found[1].lower())
        return Act("press", text=key) if key else None
    wish = web.parse(turn)
    if wish is None or wish.ref is None:
        return None
    return Act(wish.kind, (wish.ref,), wish.text)
