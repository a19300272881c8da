"""``miniwob:TASK``: MiniWoB++'s pages in the web world's headless Chromium, exact to fork.

A task is a seed for the page's own generator; held-out tasks use the page's own ``test`` mode where it has
one. The task in words and every element stand in each observation; actions are those of
:data:`~refork_worlds.miniwob_actions.SPACE`. The reward is the page's own, before any penalty
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork.worlds.spec import Spec
from refork_worlds.miniwob_actions import SPACE, Act, parse
from refork_worlds.miniwob_page import MiniwobPage
from refork_worlds.screens.device import DONE, INVALID, NOT_DONE
from refork_worlds.web.browser import in_browser

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
