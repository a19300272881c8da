"""A MiniWoB page in the web world's browser: its clock stands still but for us, its chance is seeded.

The page's clock (``Date``, timers, animation frames) is Playwright's: it moves by a fixed time after each
action, however long the browser took. ``Math.random`` is seeded before the page's own scripts run, and again
by the page's own ``Math.seedrandom``; transitions of style, which keep the browser's own time, are off. Only
to be used in the browser's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, final

from refork.types import Json
from refork_worlds.miniwob_actions import Act
from refork_worlds.screens.elements import word
from refork_worlds.web.page import Tab

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
_SCROLL: Final = """([mark, ref, way]) => {
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
            inside.evaluate(_SCROLL, [_MARK, action.refs[0], action.text])
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
