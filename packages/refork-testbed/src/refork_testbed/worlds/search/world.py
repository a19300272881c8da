"""``search``: find the answer to a question with a search engine over a real index.

A turn searches (``search: words``, further results with ``search: words ; page 2``), opens a page of the last
results or of a known title (``open: 2``, ``open: velamora``), or ends with ``answer: item ; item``.
The reward is the item F1 of the answer, less ``cost`` for every page that was opened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import final

from refork.errors import BadInput
from refork.thoughts import without_thoughts
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.environment import ActionObservation, Brief, DomainName
from refork.worlds.game import different, reading
from refork.worlds.spec import Spec
from refork_methods.simulate.search_text import (
    NO_PAGE,
    NO_RESULTS,
    NOTHING,
    TIME_UP,
    Call,
    Grade,
    grade,
    read_action,
)
from refork_testbed.worlds.search.engine import Index, Snippets, query_words
from refork_testbed.worlds.search.source import KINDS, Fictions, text_of

#: Types of the options of a specification.
OPTIONS: dict[str, type | tuple[type, ...]] = {
    "snippets": (str, float, int),
    "words": int,
    "results": int,
    "turns": int,
    "cost": (float, int),
    "kinds": str,
    "each": int,
    "brief": str,
    "lists": bool,
}
_RICH = {"rich": 1.0, "teaser": 0.0}


@final
@dataclass(frozen=True)
class SearchWorld:
    """Questions about ``source``; ``results`` a page, ``cost`` of the reward for every page opened.

    ``told``: what a simulator's brief holds, all of it or, for small models, only answer and pages.
    """

    source: Fictions = field(default_factory=Fictions)
    snippets: Snippets = field(default_factory=Snippets)
    results: int = 5
    turns: int = 8
    cost: float = 0.0
    told: str = "full"
    options: str = ""

    domain: DomainName = "search"
    version = "1.1"
    deterministic = True

    def __post_init__(self) -> None:
        if self.results < 1 or self.turns < 1:
            raise BadInput("there is at least one result a page and one turn", where="search")
        if not 0.0 <= self.cost <= 1.0:
            raise BadInput(f"a page cannot cost {self.cost!r} of the reward", where="search", hint="0 to 1")
        if self.told not in ("full", "short"):
            raise BadInput(f"there is no {self.told!r} brief", where="search", hint="full or short")

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"search?{self.options}" if self.options else "search"

    @property
    def max_turns(self) -> int:
        """Turns, the answer included."""
        return self.turns

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded questions; a shorter list is a prefix of a longer one.

        An invented world is in one split with all of its questions.

        Raises:
            BadInput: there are not so many.
        """

        def draw(number: int) -> Task | None:
            data = self.source.draw(split, seed, number)
            if data is None:
                return None
            return Task(f"search/{digest(data)[:16]}", self.name, split, _prompt(data), data)

        return different(count, draw, f"{split} tasks of {self.name}")

    def start(self, task: Task, seed: int) -> SearchEpisode:
        """Begin; there is no chance."""
        del seed
        return SearchEpisode(self, task, self.source.index(task.data))

    def restore(self, task: Task, snapshot: bytes) -> SearchEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        with reading(self.name, task, snapshot) as record:
            state = State(record["query"], int(record["opens"]), int(record["turn"]))
            seen = None if record["seen"] is None else Observation(**record["seen"])
            if not isinstance(state.query, str | None) or min(state.opens, state.turn) < 0:
                raise ValueError("a query that is no text, or less than nothing")
        return SearchEpisode(self, task, self.source.index(task.data), state, seen)

    def brief(self, task: Task) -> Brief:
        """What a simulator of a task is told: the engine's rules, the pages that matter, and the answer."""
        return _brief(self, task.id, json.dumps(task.data, sort_keys=True))

    def action_in(self, turn: str) -> str:
        """What of an agent's turn is its action, in its plain form; the turn itself where there is none."""
        call = read_action(turn)
        if call is None:
            return without_thoughts(turn)
        return f"{call.verb}: {call.words}" + (f" ; page {call.page}" if call.page != 1 else "")

    def agent(self, task: Task, seed: int) -> SearchAgent:
        """A scripted agent that solves, explores or errs."""
        titles = tuple(self.source.index(task.data).pages)
        return SearchAgent(task, titles, seed)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Whether an answer was given or the turns are used up, and the reward; from the actions alone.

        The answer is graded against the task's own items, so a simulator's wrong verdict earns nothing.
        """
        opens = 0
        for action, _ in history[: self.turns]:
            call = read_action(action)
            if call is not None and call.verb == "answer":
                return True, self.reward(grade(call.words, task.data["answer"]), opens)
            opens += call is not None and call.verb == "open"
        return (True, self.reward(None, opens)) if len(history) >= self.turns else (False, None)

    def reward(self, given: Grade | None, opens: int) -> float:
        """The item F1 of an answer (None: none was given), less the cost of the pages opened."""
        return (given.f1 if given is not None else 0.0) - self.cost * opens

    def result_page(self, index: Index, query: str, page: int) -> tuple[str, tuple[str, ...]]:
        """A page of results as text, and the titles on it."""
        found = index.search(query)
        first = (page - 1) * self.results
        titles = found[first : first + self.results] if page >= 1 else ()
        if not titles:
            return NO_RESULTS, ()
        lines = [
            f"{first + i} {title} : {self.snippets.of(title, index.pages[title], query, index.name)}"
            for i, title in enumerate(titles, start=1)
        ]
        pages = -(-len(found) // self.results)
        return "\n".join([*lines, f"page {page} of {pages}"]), titles


@dataclass(frozen=True, slots=True)
class State:
    """The query whose results can be opened by number, pages opened, and turns used."""

    query: str | None = None
    opens: int = 0
    turn: int = 0


@final
class SearchEpisode:
    """One live search."""

    def __init__(
        self,
        world: SearchWorld,
        task: Task,
        index: Index,
        state: State | None = None,
        observation: Observation | None = None,
    ) -> None:
        self.world, self.task, self.index = world, task, index
        self.state = state or State()
        self._seen = observation

    @property
    def first(self) -> Observation:
        """The prompt says it all."""
        return Observation("", digest("search", self.task.id, ""))

    def step(self, action: str) -> Observation:
        """Search, open or answer; after the end the last answer is given again."""
        if self._seen is not None and self._seen.done:
            return self._seen
        call = read_action(action)
        state = replace(self.state, turn=self.state.turn + 1)
        given: Grade | None = None
        info: Json
        if call is None:
            text = f"{NOTHING} ; say search: words , open: number or answer: text"
            info = {"invalid": True, "exact": True, "note": "this is no action"}
        elif call.verb == "answer":
            given = grade(call.words, self.task.data["answer"])
            right = " ; ".join(self.task.data["answer"])
            text, info = (
                given.verdict,
                {"exact": True, "note": f"the right items are {right}", "f1": given.f1},
            )
        elif call.verb == "search":
            state = replace(state, query=call.words)
            text, info = self._searched(call)
        else:
            state = replace(state, opens=state.opens + 1)
            text, info = self._opened(call.words)
        self.state = state
        done = given is not None or state.turn >= self.world.turns
        if done and given is None:
            text = f"{text}\n{TIME_UP}"
        reward = self.world.reward(given, state.opens) if done else None
        # How many pages were opened is part of the state only where it changes the reward.
        key = digest("search", self.task.id, state.query, text, state.opens if self.world.cost else 0)
        self._seen = Observation(text, key, done, reward, info)
        return self._seen

    def _searched(self, call: Call) -> tuple[str, Json]:
        text, titles = self.world.result_page(self.index, call.words, call.page)
        if not titles:
            return text, {"exact": False}
        path = self.task.data["path"]
        # The brief says what a search for a title of the path lists, and shows the path's pages alone.
        told = query_words(call.words) in [query_words(title) for title in path] and call.page == 1
        info: Json = {"exact": told and set(titles) <= set(path), "titles": list(titles)}
        return text, info | {"note": f"{call.words} : {' ; '.join(titles)}"}

    def _opened(self, what: str) -> tuple[str, Json]:
        title = what if what in self.index.pages else what.lower()
        path = self.task.data["path"]
        number = int(what) if what.isascii() and what.isdecimal() and len(what) <= 9 else None
        if number is not None and title not in self.index.pages:
            found = self.index.search(self.state.query) if self.state.query is not None else ()
            title = found[number - 1] if 1 <= number <= len(found) else ""
        if title not in self.index.pages:
            return NO_PAGE, {"exact": False, "opened": None}
        # What a number means is known of the first page of results.
        known = title in path and (title == what or number is None or number <= self.world.results)
        info: Json = {"exact": known, "opened": title, "note": f"the page {title}"}
        return text_of(title, self.index.pages[title]), info

    def snapshot(self) -> bytes:
        """The state and the last observation as JSON."""
        seen = None if self._seen is None else asdict(self._seen)
        return json.dumps({"task": self.task.id, "seen": seen} | asdict(self.state), sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """Indexes are shared by all episodes of the process."""


def _prompt(data: Json) -> str:
    several = " ; answer with all , separated by ;" if len(data["answer"]) > 1 else ""
    return f"{data['question']}{several}"


@lru_cache(maxsize=256)
def _brief(world: SearchWorld, name: str, key: str) -> Brief:
    data = json.loads(key)
    index = world.source.index(data)
    shares = {
        1.0: "the sentence that fits the query best",
        0.0: "a sentence beside the one that was asked for",
    }
    shown = shares.get(world.snippets.rich, "a sentence of the page")
    cut = f" , its last {world.snippets.words} words" if world.snippets.words else ""
    lists = []
    for title in data["path"]:
        _, titles = world.result_page(index, title, 1)
        lists.append(f"search: {title} lists {' ; '.join(titles)} of {len(index.search(title))}")
    pages = [text_of(title, index.pages[title]) for title in data["path"]]
    answer = f"reference answer : {' ; '.join(data['answer'])}"
    if world.told == "short":
        return Brief(initial_state="\n".join([answer, *pages]))
    state = [
        world.source.known(data),
        f"{world.results} results a page ; a snippet is {shown}{cut}",
        f"question : {data['question']}",
        answer,
        *lists,
        *pages,
    ]
    return Brief(
        task_description=f"You are a search engine , its pages , and the judge of the answer ({name}) .",
        action_space="search: words ; page number\nopen: number or title\nanswer: item ; item",
        initial_state="\n".join(state),
        simulation_instruction=(
            "Results are lines of number , title : snippet , then page of pages . A page is its title and "
            "its sentences , a line each . The verdict is accepted or rejected : right , wrong , missing ."
        ),
    )


def open_search(spec: Spec) -> SearchWorld:
    """``search``: a search engine over invented facts (kinds, snippets, turns).

    Raises:
        BadInput: an unknown option, kind of question or snippet policy.
    """
    spec.alone()
    said = spec.take(OPTIONS)
    rich = said.pop("snippets", "rich")
    if isinstance(rich, str):
        if rich not in _RICH:
            raise BadInput(f"snippets cannot be {rich!r}", where="search", hint="rich, teaser, or a share")
        rich = _RICH[rich]
    kinds = tuple(said.pop("kinds").split(",")) if "kinds" in said else tuple(KINDS)
    source = Fictions(kinds, said.pop("each", 4), said.pop("lists", True))
    snippets = Snippets(float(rich), said.pop("words", 0))
    return SearchWorld(source, snippets, told=said.pop("brief", "full"), options=spec.query, **said)


MANNERS = ("solver", "solver", "explorer", "erring")


@final
class SearchAgent:
    """An agent that follows the task's path of pages and then answers; ``manner`` is drawn by the seed.

    An explorer also looks at other pages and results; one that errs says nonsense, opens what is not there,
    and may answer wrongly. What it does next is a function of the task, the seed and what was seen.
    """

    def __init__(self, task: Task, titles: Sequence[str], seed: int) -> None:
        self.task, self._titles, self._seed = task, titles, seed
        self.manner = Dice("search actor", task.id, seed).choice(MANNERS)

    def act(self, observed: Sequence[ActionObservation]) -> str | None:
        """The next action; None after the answer."""
        if observed and (last := read_action(observed[-1][0])) is not None and last.verb == "answer":
            return None
        dice = Dice("search actor", self.task.id, self._seed, len(observed))
        if self.manner == "explorer" and dice.uniform() < 0.5:
            return self._looks_around(dice, observed)
        if self.manner == "erring" and dice.uniform() < 0.4:
            return self._errs(dice)
        return self._solves(observed)

    def _solves(self, observed: Sequence[ActionObservation]) -> str:
        opened = {said.split("\n")[0] for action, said in observed if action.startswith("open:")}
        target = next((title for title in self.task.data["path"] if title not in opened), None)
        if target is None:
            return "answer: " + " ; ".join(self.task.data["answer"])
        action, said = observed[-1] if observed else ("", "")
        for line in said.split("\n") if action.startswith("search:") else ():
            number, _, rest = line.partition(" ")
            if rest.startswith(f"{target} : "):
                return f"open: {number}"
        return f"open: {target}" if action == f"search: {target}" else f"search: {target}"

    def _looks_around(self, dice: Dice, observed: Sequence[ActionObservation]) -> str:
        last = next((action for action, _ in reversed(observed) if action.startswith("search:")), None)
        ways = [f"search: {dice.choice(self._titles)}", f"search: {self.task.data['question']}"]
        if last is not None:
            ways += [f"open: {1 + dice.below(3)}", f"{last.partition(' ;')[0]} ; page {2 + dice.below(2)}"]
        return dice.choice(ways)

    def _errs(self, dice: Dice) -> str:
        wrong = dice.choice(self._titles)
        return dice.choice(["look around", "open: 99", "search:", f"open: no {wrong}", f"answer: {wrong}"])
