"""``web``: a small site per task in a real browser; ``web:FOLDER`` and ``web:URL``: a site of one's own.

The built-in site is served from memory, a folder from the disk: no port is opened and nothing else is
reached. A browser's state cannot be put back exactly, so there are no snapshots: a fork replays, which is
checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.environment import ActionObservation, Brief, DomainName
from refork.worlds.game import different, need
from refork.worlds.spec import Spec
from refork_worlds.screens.actions import action_in, is_number
from refork_worlds.screens.device import DONE, INVALID, NOT_DONE
from refork_worlds.web import site
from refork_worlds.web.actions import SPACE, SUBMIT, Action, parse
from refork_worlds.web.browser import in_browser
from refork_worlds.web.page import Tab
from refork_worlds.web.site import SUBJECTS, THINGS
from refork_worlds.web.tree import Node

# Scripted visitors: some know the built-in site and decide by what a page says, one looks around any.


#: Probability of a random action in a turn, by kind of visitor.
ERRS: Final = {"solve": 0.0, "err": 0.25, "explore": 0.8, "wander": 1.0}
NONSENSE: Final = ("click", "press the button", "click 99")
_STATES: Final = ("checked", "selected", "expanded", "disabled", "required")


@final
@dataclass(frozen=True, slots=True)
class Line:
    """An element as the text of a page has it."""

    ref: int
    role: str
    name: str
    rest: str


def lines(text: str) -> list[Line]:
    """The elements of a page's text that have a reference."""
    found = []
    for row in text.split("\n"):
        number, _, rest = row.partition(" ")
        role, _, rest = rest.partition(" ")
        if not is_number(number):
            continue
        name = ""
        if rest.startswith("name "):
            name = re.split(r" (?:value|of) ", rest[5:])[0]
            # States stand right behind the name, and nothing marks where it ends.
            while name.rpartition(" ")[2] in _STATES:
                name = name.rpartition(" ")[0]
        found.append(Line(int(number), role, name, rest))
    return found


def title_of(text: str) -> str:
    """The title in the text of a page."""
    return next((row[5:] for row in text.split("\n") if row.startswith("page ")), "")


@final
class Visitor:
    """A visitor with a request; it clicks where the page shows the next thing to do."""

    def __init__(self, data: Json | None, first: str, dice: Dice, turns: int) -> None:
        self._data, self._first, self._dice = data, first, dice
        self.kind = dice.choice(("solve", "solve", "err", "err", "explore")) if data else "wander"
        self._leaves = turns - 1 - dice.below(max(turns // 2, 1))

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next action; None after the verdict."""
        if history and history[-1][0].strip() == SUBMIT:
            return None
        text = history[-1][1] if history else self._first
        if self._data is None and len(history) >= self._leaves:
            return SUBMIT
        if self._dice.uniform() < ERRS[self.kind]:
            return self._strayed(text)
        return step(self._data or {}, text, [action for action, _ in history])

    def _strayed(self, text: str) -> str:
        if self._dice.uniform() < 0.05:
            return self._dice.choice(NONSENSE)
        options = ["back", "scroll down"]
        for one in lines(text):
            if one.role in ("textbox", "searchbox"):
                options += [f"type {one.ref}: {self._dice.choice((*THINGS, *SUBJECTS))}"]
            elif one.role == "combobox":
                choices = re.split(r" of ", one.rest)[-1].split(" ")
                options += [f"select {one.ref}: {self._dice.choice(choices)}"]
            else:
                options += [f"click {one.ref}"]
        return self._dice.choice(options)


_WHERE: Final = {"drop": "cart", "add": "list", "tick": "list", "send": "write"}


def step(data: Json, text: str, done: Sequence[str]) -> str:
    """What to do next on this page for the request of a task."""
    kind, args = data["kind"], data["args"]
    here, known = title_of(text), lines(text)
    home = f"item {args[1]}" if kind == "buy" else _WHERE.get(kind, "settings")
    if kind == "send" and here == "sent" and f"text {args[0]} to {args[1]}" in text:
        return SUBMIT
    if here != home:
        if kind == "buy" and here == "shop":
            return _click(known, "link", args[1])
        return _click(known, "link", "shop" if kind == "buy" else home)
    if kind == "buy":
        return _buy(args, text, known)
    if kind == "drop":
        gone = not any(one.name == f"remove {args[0]}" for one in known)
        return SUBMIT if gone else _click(known, "button", f"remove {args[0]}")
    if kind == "tick":
        box = _named(known, "checkbox", args[0])
        return SUBMIT if box is None or "checked" in box.rest.split(" ") else f"click {box.ref}"
    if kind == "add" and _named(known, "checkbox", args[0]):
        return SUBMIT
    if kind in ("add", "send"):
        return _fill(kind, args, known)
    return _settings(kind, args, text, known, done)


def _named(known: Sequence[Line], role: str, name: str) -> Line | None:
    return next((one for one in known if (one.role, one.name) == (role, name)), None)


def _click(known: Sequence[Line], role: str, name: str) -> str:
    found = _named(known, role, name)
    return SUBMIT if found is None else f"click {found.ref}"


def _value(one: Line) -> str:
    return one.rest.partition(" value ")[2].split(" ")[0]


def _buy(args: Sequence[str], text: str, known: Sequence[Line]) -> str:
    count = _named(known, "combobox", "count")
    if f"in cart {args[0]}" in text:
        return SUBMIT
    if count is not None and _value(count) != args[0]:
        return f"select {count.ref}: {args[0]}"
    return _click(known, "button", "add")


def _fill(kind: str, args: Sequence[str], known: Sequence[Line]) -> str:
    box = _named(known, "textbox", "new" if kind == "add" else "subject")
    if box is not None and _value(box) != args[0]:
        return f"type {box.ref}: {args[0]}"
    to = _named(known, "combobox", "to") if kind == "send" else None
    if to is not None and _value(to) != args[1]:
        return f"select {to.ref}: {args[1]}"
    return _click(known, "button", "add" if kind == "add" else "send")


def _settings(kind: str, args: Sequence[str], text: str, known: Sequence[Line], done: Sequence[str]) -> str:
    tab = _named(known, "tab", "mail" if kind == "news" else "profile")
    if tab is None or "selected" not in tab.rest.split(" "):
        return SUBMIT if tab is None else f"click {tab.ref}"
    role = {"news": "checkbox", "language": "combobox"}.get(kind, "textbox")
    box = _named(known, role, kind)
    if box is None:
        return SUBMIT
    if kind == "news":
        right = ("checked" in box.rest.split(" ")) == (args[0] == "on")
        change = f"click {box.ref}"
    else:
        right = _value(box) == args[0]
        change = f"{'select' if kind == 'language' else 'type'} {box.ref}: {args[0]}"
    if not right:
        return change
    save = _click(known, "button", "save")
    return SUBMIT if "saved" in text and done and done[-1] == save else save


#: What ``submit`` is answered where nobody can say how it went.
OVER: Final = "the episode is over"
TURNS: Final = 14
_KEYS: Final = ("prices", "state", "kind", "args")


@final
@dataclass(frozen=True)
class WebWorld:
    """The built-in site (``where`` empty), a folder of pages, or an address."""

    where: str = ""
    turns: int = TURNS
    chromium: str | None = None
    options: str = ""
    _first: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    version = "1"
    domain: DomainName = "web"

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"web{f':{self.where}' if self.where else ''}{f'?{self.options}' if self.options else ''}"

    @property
    def max_turns(self) -> int:
        """Turns after which a run counts as failed."""
        return self.turns

    @property
    def deterministic(self) -> bool:
        """Whether pages answer alike each time: an address need not."""
        return not self.live

    @property
    def live(self) -> bool:
        """Whether pages come over the network."""
        return self.where.startswith(("http://", "https://"))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded tasks; a site of one's own has those of its ``tasks.json``, else visits.

        Raises:
            BadInput: there are not so many.
        """

        def draw(number: int) -> Task | None:
            data = self._draw(Dice("web", self.where, seed, number), number)
            mark = digest(data)
            if split_of(mark) != split:
                return None
            return Task(f"web/{mark[:16]}", self.name, split, _prompt(data), data)

        return different(count, draw, f"{split} tasks of {self.name}")

    def _draw(self, dice: Dice, number: int) -> Json:
        if not self.where:
            return site.draw(dice)
        own = _own_tasks(Path(self.where)) if not self.live else []
        if own:
            return dice.choice(own)
        start = self.where if self.live else dice.choice(_html(Path(self.where)))
        return {"start": start, "visit": number}

    def start(self, task: Task, seed: int) -> WebEpisode:
        """Begin; the page is opened when it is first needed."""
        del seed
        if not self.where:
            need(task.data, _KEYS, "web")
        else:
            need(task.data, ("start",), "web")
        return WebEpisode(self, task)

    def restore(self, task: Task, snapshot: bytes) -> WebEpisode:
        """A browser cannot be put back; raises CannotDo."""
        del snapshot
        raise CannotDo(
            "a browser's state cannot be restored", where=f"task {task.id}", hint="replay the actions"
        )

    def open(self, browser: Any, task: Task) -> Tab:
        """The first page of a task; in the browser's thread."""
        if not self.where:
            return Tab(browser, site.pages(task.data), "index.html")
        return Tab(browser, None if self.live else Path(self.where), str(task.data["start"]))

    def brief(self, task: Task) -> Brief:
        """The request, the actions, what the site holds as far as it is known, and the first page."""
        if (key := _entry(task)) not in self._first:
            episode = self.start(task, 0)
            self.begun(task, episode.first.text)
            episode.close()
        held = "" if self.where else site.describe(task.data) + "\n"
        kind = "a web site" if not self.where else f"the web site {self.where}"
        return Brief(
            task_description=f"{kind} ; the user wants : {task.prompt}",
            action_space=SPACE,
            initial_state=held + self._first[key],
        )

    def begun(self, task: Task, text: str) -> None:
        """Remember the page that a task begins with: the built-in site always begins alike."""
        self._first.setdefault(_entry(task), text)

    def agent(self, task: Task, seed: int) -> Visitor:
        """A scripted visitor; the seed draws whether it solves, errs or explores."""
        first = self.brief(task).initial_state
        text = first[first.index("page ") :]
        return Visitor(None if self.where else task.data, text, Dice("visitor", task.id, seed), self.turns)

    def action_in(self, turn: str) -> str:
        """The action alone, out of a policy's whole turn."""
        return action_in(turn)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Over with a verdict, or when the turns are used up; a site without a request is not graded."""
        for _, text in history:
            if text.strip() in (DONE, NOT_DONE, OVER):
                return True, None if text.strip() == OVER else float(text.strip() == DONE)
        if len(history) < self.turns:
            return False, None
        return True, 0.0 if _graded(task.data) else None


def _entry(task: Task) -> str:
    return str(task.data.get("start", ""))


def _graded(data: Json) -> bool:
    return "state" in data or "expect" in data


def _prompt(data: Json) -> str:
    if "kind" in data:
        return site.WORDING[data["kind"]].format(*data["args"])
    return str(data.get("prompt", "look around"))


def _html(folder: Path) -> list[str]:
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    if not found:
        raise BadInput("there is no page (*.html) in this folder", where=str(folder))
    return found


def _own_tasks(folder: Path) -> list[Json]:
    """Tasks of a folder's ``tasks.json``: prompt, words that the last page must show, page to start on."""
    path = folder / "tasks.json"
    if not path.is_file():
        return []
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
        return [
            {"start": str(one.get("start", "index.html")), "prompt": one["prompt"], "expect": one["expect"]}
            for one in items
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"not a list of tasks: {error!r}", where=str(path), hint='[{"prompt": ..., "expect": ...}, ...]'
        ) from error


@final
class WebEpisode:
    """One live visit, in a browser context of its own."""

    def __init__(self, world: WebWorld, task: Task) -> None:
        self.world, self.task, self.turn = world, task, 0
        self._tab: Tab | None = None
        self._first: Observation | None = None
        self._last: Observation | None = None
        self._nodes: Sequence[Node] = ()
        self._before: Sequence[Node] = ()
        self._text = ""
        self._state: Any = None

    @property
    def first(self) -> Observation:
        """The page before any action."""
        if self._first is None:
            in_browser(self._begin, self.world.chromium)
            self._first = Observation(self._text, self._key())
            self.world.begun(self.task, self._text)
        return self._first

    def _begin(self, browser: Any) -> None:
        from playwright.sync_api import Error

        try:
            self._tab = self.world.open(browser, self.task)
            self._look()
        except Error as error:
            first = str(error).partition("\n")[0]
            raise CannotDo(f"the page cannot be opened: {first}", where=f"task {self.task.id}") from error

    def _look(self) -> None:
        """See the page again; in the browser's thread."""
        if self._tab is not None:
            self._text, self._nodes = self._tab.see()
            raw = self._tab.storage()
            self._state = None if raw is None else json.loads(raw)

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self._last is not None and self._last.done:
            return self._last
        _ = self.first
        before, state = self._text, self._state
        wish = parse(action)
        self.turn += 1
        info: Json = {}
        if wish is not None and wish.kind == SUBMIT:
            self._last = self._graded(before)
            return self._last
        why = "not an action" if wish is None else in_browser(lambda _: self._do(wish), self.world.chromium)
        text = self._text
        if why:
            text, info["invalid"] = f"{INVALID}\n{text}", True
        info["changed"] = self._text != before
        if not self.world.where:
            info |= {"exact": True, "note": why or self._note(wish, before, state)}
        late = self.turn >= self.world.turns
        reward = 0.0 if late and _graded(self.task.data) else None
        self._last = Observation(text, self._key(), late, reward, info)
        return self._last

    def _do(self, action: Action) -> str:
        """Act on the page; why nothing came of it, else nothing. In the browser's thread."""
        from playwright.sync_api import Error

        if self._tab is None:
            return "no page"
        # For the note: the element that was acted on may be gone afterwards.
        self._before = self._nodes
        try:
            why = self._tried(self._tab, action)
        except Error as error:
            why = str(error).partition("\n")[0].partition(":")[0]
        self._look()
        return why

    def _tried(self, tab: Tab, action: Action) -> str:
        if action.kind == "back":
            return "" if tab.back() else "no page before"
        if action.kind == "scroll":
            tab.scroll(action.text)
            return ""
        if action.kind == "open":
            return "" if tab.reach(action.text) else "another site"
        node = next((one for one in self._nodes if one.ref == action.ref), None)
        if node is None:
            return f"no {action.ref}"
        target = tab.target(node)
        if action.kind == "click":
            target.click()
        elif action.kind == "type":
            target.fill(action.text)
        else:
            target.select_option(label=action.text)
        return ""

    def _note(self, action: Action | None, before: str, state: Any) -> str:
        """What decided the answer: which element it was, what the site now holds, which page opens."""
        node = next(
            (one for one in self._before if action and one.ref is not None and one.ref == action.ref), None
        )
        parts = (
            [] if node is None or action is None else [f"{action.ref} is {node.role} {node.name}".rstrip()]
        )
        parts += [f"value {action.text}"] if parts and action and action.text else []
        old = site.in_words(state)
        parts += [f"{key} : {text}" for key, text in site.in_words(self._state).items() if text != old[key]]
        title = self._text.partition("\n")[0]
        if title != before.partition("\n")[0]:
            parts.append(f"opens {title.removeprefix('page ')}")
        return " ; ".join(parts) or "nothing changes"

    def _graded(self, shown: str) -> Observation:
        data = self.task.data
        key = self._key(over=True)
        if not _graded(data):
            return Observation(OVER, key, True, None, {"changed": True})
        info: Json = {"changed": True}
        if "state" in data:
            met = self._state == site.wanted(data)
            want = site.in_words(site.wanted(data))
            wrong = [k for k, text in site.in_words(self._state).items() if text != want[k]]
            info |= {
                "exact": True,
                "note": f"not as wanted : {' '.join(wrong)}" if wrong else "all as wanted",
            }
        else:
            met = str(data["expect"]) in shown
        return Observation(DONE if met else NOT_DONE, key, True, float(met), info)

    def _key(self, over: bool = False) -> str:
        return digest("web", self.task.id, self._text, self._state, over)

    def picture(self) -> bytes:
        """The page as PNG, to compare with what its text says."""
        _ = self.first
        tab = self._tab
        return b"" if tab is None else in_browser(lambda _: tab.picture(), self.world.chromium)

    def snapshot(self) -> None:
        """None: a browser's state cannot be put back exactly."""
        return

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """Close the page and forget its storage."""
        tab, self._tab = self._tab, None
        if tab is not None:
            in_browser(lambda _: tab.close(), self.world.chromium)


def open_web(spec: Spec) -> WebWorld:
    """``web:SITE``: pages in headless Chromium as accessibility trees; SITE: a folder or an address (turns).

    Raises:
        BadInput: an option, or a folder without pages. (A missing browser is said when a page is opened.)
    """
    given: Mapping[str, Any] = spec.take({"turns": int, "chromium": str})
    if "chromium" in given:
        spec.typed("a browser")
    turns = given.get("turns", TURNS)
    if turns < 1:
        raise BadInput(f"an episode has at least one turn, not {turns}", where="web")
    world = WebWorld(spec.argument, turns, given.get("chromium"), spec.query)
    if world.where and not world.live:
        if not Path(world.where).is_dir():
            raise BadInput(
                f"{world.where!r} is neither a folder nor an address", where="web", hint="web:FOLDER"
            )
        _html(Path(world.where))
    return world
