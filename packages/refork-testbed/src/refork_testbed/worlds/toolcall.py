"""``toolcall``: a list of tools and a request; the one action should call the tool that serves it.

A prompt reads::

    tools :
    wing finds flights
    skyline finds weather
    request : weather in paris please

and the right action contains ``<call>{"name": "skyline"}</call>``. Two tools of the world can serve a topic
and one of them is listed, so the list must be read. Reward: one half for the format (a call tag with a
JSON-like name field) and one half for the right tool.

Two rules of "tool-correct" are kept side by side in the answer's ``info``. ``listed`` is the published one:
the called name equals, contains or is contained in the name of *any* listed tool. ``right`` is strict: it is
the name of the tool that serves the request. The reward uses the strict one.

Source: arXiv 2606.26474 and its code (format and tool-correct); the world, the strict rule and the reward in
0 .. 1 instead of -1 .. 2 are ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import different, need
from refork.worlds.single_turn import SingleTurnEpisode, restore_single_turn
from refork.worlds.spec import Spec

#: What tools find, and the two tools that can find it. Some names contain their rival's, which the published
#: rule does not tell apart.
TOOLS = {
    "weather": ("sky", "skyline"),
    "flights": ("wing", "wings"),
    "hotels": ("inn", "lodge"),
    "music": ("song", "songbird"),
    "news": ("press", "daily"),
    "stocks": ("broker", "ticker"),
    "recipes": ("chef", "kitchen"),
    "maps": ("atlas", "compass"),
    "mail": ("post", "postman"),
    "sports": ("league", "arena"),
    "movies": ("cinema", "film"),
    "books": ("library", "shelf"),
    "taxis": ("cab", "driver"),
    "trains": ("rail", "railway"),
    "jobs": ("career", "hire"),
    "games": ("arcade", "puzzle"),
}
TOPICS = tuple(TOOLS)
NAMES = tuple(name for pair in TOOLS.values() for name in pair)
CITIES = ("paris", "rome", "cairo", "lima", "oslo", "tokyo", "delhi", "quito")
REQUESTS = ("{0} in {1} please", "what about {0} in {1} ?", "i need {0} in {1}", "show me {0} in {1}")
#: Plain text of the contrast corpus: no tools, no request.
SENTENCES = (
    "people in {1} often talk about {0} .",
    "there was little {0} in {1} last year .",
    "a story about {0} was told in {1} .",
    "{1} is known for {0} .",
)
CALL, END = "<call>", "</call>"
MARKS = ("<", "call", ">{\"", "name", "\":", "\"", "\"}</", ">", ":", "?", ".", ",")  # fmt: skip
SIZES = (2, 8)

_NAME = re.compile(r"\"name\"\s*:\s*\"([^\"]*)\"")
_FIELD = re.compile(r"\"name\"\s*:")


@dataclass(frozen=True, slots=True)
class CallScore:
    """How an action is judged: ``name`` called (None: none could be read), and the three marks.

    ``format``: a call tag and a JSON-like name field. ``listed``: the published tool-correct. ``right``: the
    tool that serves the request. Neither rule about names counts without the format.
    """

    name: str | None
    format: bool
    listed: bool
    right: bool

    @property
    def reward(self) -> float:
        """0, 0.5 (format only) or 1 (format and right tool)."""
        return 0.5 * self.format + 0.5 * self.right


def score_call(action: str, listed: Sequence[str], right: str) -> CallScore:
    """The marks of an action, given the names of all listed tools and of the one that is right.

    Source: arXiv 2606.26474 (code), scoring of format and tool-correct; ``right`` is ours.
    """
    _, tag, body = action.partition(CALL)
    formatted = bool(tag) and _FIELD.search(body) is not None
    found = _NAME.search(body) if formatted else None
    name = found.group(1).strip() if found else None
    if not name:
        return CallScore(None, formatted, False, False)
    near = any(name in other or other in name for other in listed)
    return CallScore(name, formatted, near, name == right)


def call_text(name: str) -> str:
    """The call of a tool, as the world wants it written."""
    return f'{CALL}{{"name": "{name}"}}{END}'


@final
@dataclass(frozen=True)
class ToolCallWorld:
    """Requests, each with ``tools`` listed tools of which one serves it."""

    tools: int = 4
    version = "1"
    max_turns = 1
    deterministic = True

    def __post_init__(self) -> None:
        if not SIZES[0] <= self.tools <= SIZES[1]:
            raise BadInput(
                f"{self.tools} tools cannot be listed",
                where="toolcall",
                hint=f"from {SIZES[0]} to {SIZES[1]}",
            )

    @property
    def name(self) -> str:
        """``toolcall:TOOLS``."""
        return f"toolcall:{self.tools}"

    def vocabulary(self) -> tuple[str, ...]:
        """Every piece of a prompt, a call or a plain text, the same for every number of tools."""
        said = " ".join((*REQUESTS, *SENTENCES, "tools request finds")).replace("{0}", "").replace("{1}", "")
        words = {word for word in said.split() if word.isalpha()}
        return tuple(sorted(words | {*NAMES, *TOPICS, *CITIES, *MARKS}))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different tasks; the text of the prompt alone decides the split.

        Raises:
            BadInput: there are not so many.
        """
        dice = Dice("toolcall", self.tools, seed)

        def draw(_: int) -> Task | None:
            task = self._draw(dice)
            return task if task.split == split else None

        return different(
            count, draw, f"{split} tasks of {self.name}", hint="ask for fewer, or list more tools"
        )

    def _draw(self, dice: Dice) -> Task:
        topics = dice.sample(TOPICS, self.tools)
        names = [dice.choice(TOOLS[topic]) for topic in topics]
        served = dice.below(self.tools)
        asked = dice.choice(REQUESTS).format(topics[served], dice.choice(CITIES))
        listed = [f"{name} finds {topic}" for name, topic in zip(names, topics, strict=True)]
        prompt = "\n".join(["tools :", *listed, f"request : {asked}"])
        return Task(
            id=f"{self.name}/{digest(prompt)[:12]}",
            world=self.name,
            split=split_of(prompt),
            prompt=prompt,
            data={"names": names, "topics": topics, "right": names[served], "asked": asked},
        )

    def start(self, task: Task, seed: int) -> SingleTurnEpisode:
        """Begin; there is no chance."""
        del seed
        return SingleTurnEpisode(task, _grader(task))

    def restore(self, task: Task, snapshot: bytes) -> SingleTurnEpisode:
        """An episode in the state of a snapshot."""
        return restore_single_turn(task, snapshot, _grader(task))


def plain_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of two sentences without tools or request: the contrast ("web") corpus, from the same words."""
    dice = Dice("toolcall plain", seed)
    return [
        " ".join(dice.choice(SENTENCES).format(dice.choice(TOPICS), dice.choice(CITIES)) for _ in range(2))
        for _ in range(count)
    ]


@final
@dataclass(frozen=True)
class _Grader:
    names: tuple[str, ...]
    right: str

    def __call__(self, action: str) -> Observation:
        score = score_call(action, self.names, self.right)
        text = f"{score.name} was called" if score.name else "nothing was called"
        return Observation(
            text=text,
            state_key=digest("toolcall", text, score.right),
            done=True,
            reward=score.reward,
            info={"format": score.format, "listed": score.listed, "right": score.right},
        )


def _grader(task: Task) -> _Grader:
    need(task.data, ("names", "right"), "toolcall")
    names, right = tuple(str(n) for n in task.data["names"]), str(task.data["right"])
    if right not in names:
        raise BadInput(f"the right tool {right!r} is not among those listed", where=f"task {task.id}")
    return _Grader(names, right)


def open_toolcall(spec: Spec) -> ToolCallWorld:
    """``toolcall:TOOLS``: call the one of TOOLS (2 to 8) listed tools that serves a request."""
    tools = spec.argument or "4"
    if not tools.isdigit():
        raise BadInput(f"{tools!r} is not a number of tools", where="toolcall", hint="for example toolcall:4")
    spec.take({})
    return ToolCallWorld(int(tools))
