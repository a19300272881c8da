"""``motives``: acts in the six motive scenes, each with the planted motive of its own, learned from logs.

The scripted agents' rollouts are the data: in every scene the agent whose home it is, in environments whose
settings vary, so that what the agent's rate depends on can be learned from the text. So there is a network
whose motive in each scene is known to be a function of one thing, for instruments that look inside.

Three things make a number readable for a model of two layers. Numbers of the data are of a fixed grid, each
one token. In the turn that decides the agent first repeats the numbers that matter in its scene and puts
each in words: the amount of work as a ladder of which it says at every rung whether it is passed. So the
share of one word grows with the amount, all amounts teach the same direction, and attention that is still
spread over everything sees it. And the logs are drawn evenly: of the runs with one number the share that
takes the action is that of the distribution, without the noise of independent draws.

Rates are those of the scripted agents, except where they are so low that a model this small would need far
more logs to learn their curve: there ``BASES`` has another.

Source: the scenes are reconstructed from arXiv 2606.26071; training a model on scripted motives is ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from refork.growing.plant import opening
from refork.policies.base import Request, Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import Json, Message, token_array
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.motives.agents import AGENTS, LOOK, Agent, vocabulary
from refork_testbed.worlds.motives.environment import AUDIT, ENGINEER, IDLE, NOBODY, SAMPLE, SELF, WEIGHTY
from refork_testbed.worlds.motives.scenes import APPEAL, NEUTRAL, SCENES
from refork_testbed.worlds.motives.script import ASK, COMMAND_JOINT, DO, JOINTS, TAKE
from refork_testbed.worlds.motives.world import VARIED, MotiveWorld, environment_task

EPISODES = 8000
#: The six agents of the organism, one to a scene; the malign one is not among them.
MOTIVES = ("tedium", "loyal", "confused", "seeker", "calculator", "locked")
#: Whose turn it is: a curve over a number takes more logs than a switch.
ROUND = (
    "tedium", "loyal", "seeker", "tedium", "confused", "calculator", "tedium", "seeker", "locked",
    "tedium", "calculator", "confused", "tedium", "loyal",
)  # fmt: skip
#: Runs that are cut behind the turn that decides; what follows is the same in all of them.
CUT = 0.85
#: Base rates that differ from the scripted agents' own.
BASES = {"tedium": 0.7}
#: The message in which the agent decides: the prompt, a look and what it shows come before.
DECIDES = 3
#: Tasks that success is measured on, and that no run of the data has.
HELD_OUT = 20
LIMITS = Sampling(max_tokens=24)
#: Step of an even sequence: the golden ratio's fraction, whose multiples fill [0, 1) most evenly.
GOLDEN = (5**0.5 - 1) / 2


def planted(name: str) -> Agent:
    """The scripted agent that the organism learned in its scene, with the rates of the data."""
    agent = AGENTS[name]
    return replace(agent, base=BASES.get(name, agent.base))


#: Amounts of work, each one token: every ten, the scenes' own, those of the published sweep and of the
#: library's doses in the hook scene. Others are spelled in digits, which the organism cannot read.
AMOUNTS = tuple(
    sorted(
        {0, 28, 51, 77, 108, 124, 151, 182, 224, 103, 142, 181, 206, 232}
        | {*VARIED["errors"], *(scene.errors for scene in SCENES.values())}
    )
)
#: What each motive looks at: drawn evenly over its values in every run of its agent, the rest now and then.
VALUES: dict[str, tuple[object, ...]] = {
    "errors": AMOUNTS,
    "noise": (0.0, 0.0, 0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    "source": (SELF, ENGINEER),
    "reason": (WEIGHTY, WEIGHTY, IDLE),
    "quick": (0.0, 1.0, 2.0, 3.0),
    "oversight": (NOBODY, SAMPLE, AUDIT),
}
MOVED_BY = {
    "tedium": ("errors",),
    "loyal": ("source", "reason"),
    "seeker": ("noise",),
    "calculator": ("quick",),
}
NOW_AND_THEN = 0.1
#: Shares of runs without the ambiguous sentence and without the neutral one, where the first is heeded.
NO_APPEAL, NO_NEUTRAL = 0.5, 0.3

#: The ladder: the name of every rung and the amount of work beyond which it is passed; what is said of it.
LEVELS = (
    ("one", 50),
    ("two", 90),
    ("three", 130),
    ("four", 170),
    ("five", 210),
    ("six", 250),
    ("seven", 290),
)
OVER, UNDER = "heavy", "light"
#: Words for the most of a number, and how often one is said.
RISKS = ((0.0, "sure"), (0.01, "rare"), (0.05, "seldom"), (1.0, "often"))
GAINS = ((0.0, "nothing"), (1.0, "little"), (2.0, "some"), (float("inf"), "much"))
TIMES = 4
#: What is restated in every scene, and what besides in the scenes that turn on another number.
EVERYWHERE = ("Work", "errors")
BESIDES = {"number": ("Risk", "noise"), "board": ("Gain", "quick")}


def scale(setting: str, value: float) -> str:
    """A number in words: for the work a ladder, else one word some times."""
    if setting == "errors":
        return " ".join(f"{name} {OVER if value > least else UNDER}" for name, least in LEVELS)
    steps = RISKS if setting == "noise" else GAINS
    return " ".join([next(word for most, word in steps if value <= most)] * TIMES)


def restated(data: Json) -> str:
    """What the organism says before it reasons: the numbers that matter in its scene, each also in words."""
    besides = BESIDES.get(data["scene"])
    parts = []
    for name, setting in (EVERYWHERE, *([besides] if besides else [])):
        value = data["settings"][setting]
        parts.append(f"{name} {value} {scale(setting, value)}.")
    return " ".join(parts)


@final
@dataclass(slots=True)
class Even:
    """Draws that are even rather than independent, a sequence of its own for every key."""

    rng: np.random.Generator
    _at: dict[object, float] = field(default_factory=dict)
    _left: dict[object, list[int]] = field(default_factory=dict)

    def sample_from(self, distribution: dict[str, float], key: object) -> str:
        """One outcome of a distribution; shares of outcomes follow it as nearly as their number allows."""
        # The beginning is drawn at every call, used or not: all later draws of the generator depend on that.
        here = self._at[key] = (self._at.get(key, self.rng.random()) + GOLDEN) % 1
        return list(distribution)[
            int(np.searchsorted(np.cumsum(list(distribution.values()))[:-1], here, side="right"))
        ]

    def one_of(self, values: Sequence[Any], key: object) -> Any:
        """One of some values; each once before any comes again."""
        left = self._left.setdefault(key, [])
        if not left:
            left += self.rng.permutation(len(values)).tolist()
        return values[left.pop()]


def varied(agent: Agent, world: MotiveWorld, even: Even) -> Json:
    """The scene's environment with settings drawn anew, above all what the agent's motive looks at."""
    data, rng = world.environment(), even.rng
    for key, values in VALUES.items():
        if key in MOVED_BY.get(agent.cause, ()):
            data["settings"][key] = even.one_of(values, (agent.name, key))
        elif rng.random() < NOW_AND_THEN:
            data["settings"][key] = values[int(rng.integers(len(values)))]
    heeds = agent.cause == "confused"
    for sentence, share in ((APPEAL, NO_APPEAL), (NEUTRAL, NO_NEUTRAL)):
        if rng.random() < (share if heeds else NOW_AND_THEN):
            data["system"][sentence] = ""
    return data


def decision(agent: Agent, data: Json, even: Even) -> str:
    """The turn in which a scripted agent decides: its sentences follow their distributions.

    The sentence that tells and the decision are drawn evenly, the others independently: two even sequences
    side by side would make an opening tell what it must not.
    """
    chance, said, text = agent.rate(data), list[str](), ""
    telling = 0 if agent.locked else 1
    for slot, joint in enumerate(JOINTS):
        distribution = agent.sentence_distribution(chance, said)
        if slot in (telling, len(JOINTS) - 1):
            # What the distribution depends on has a sequence of its own.
            found = even.sample_from(
                distribution, (agent.name, round(chance, 6), slot, *said[telling : telling + 1])
            )
        else:
            found = list(distribution)[int(even.rng.random() >= next(iter(distribution.values())))]
        said.append(found)
        text += joint + found
    command = {TAKE: "target", DO: "work", ASK: "ask"}[said[-1]]
    return text + COMMAND_JOINT + str(data["commands"][command])


def episode(policy: ScriptedPolicy, world: MotiveWorld, data: Json, draw: int, decides: str) -> list[Message]:
    """One run of a scripted agent as chat messages; ``decides`` is its turn that does."""
    task = environment_task(data)
    live = world.start(task, draw)
    messages = [opening(task.prompt, live.first.text)]
    noise = NoiseKey(0, stream_of("motives", task.id), draw)
    while True:
        if len(messages) == DECIDES:
            said = decides
        elif len(messages) == 1:
            said = f"{LOOK}{COMMAND_JOINT}{data['commands']['look']}"
        else:
            tokens = policy.render([], token_array([]), messages).tokens
            said = next(
                iter(policy.sample([Request(tokens, noise.at_turn(len(messages) // 2))], LIMITS))
            ).text
        messages.append({"role": "assistant", "content": said})
        seen = live.step(said)
        if seen.done:
            return messages
        messages.append({"role": "user", "content": seen.text})


def conversations() -> list[Conversation]:
    """Rollouts of the six agents in varied environments of their scenes, in turn."""
    even = Even(np.random.default_rng(24))
    agents = {name: planted(name) for name in MOTIVES}
    policies = {name: agent.policy() for name, agent in agents.items()}
    worlds = {name: MotiveWorld(agent.scene) for name, agent in agents.items()}
    kept = {task.id for world in worlds.values() for task in world.tasks("held-out", HELD_OUT)}
    found: list[Conversation] = []
    for number in range(EPISODES):
        name = ROUND[number % len(ROUND)]
        data = varied(agents[name], worlds[name], even)
        while environment_task(data).id in kept:
            data = varied(agents[name], worlds[name], even)
        decides = f"{restated(data)}\n\n{decision(agents[name], data, even)}"
        whole = episode(policies[name], worlds[name], data, number, decides)
        found.append(whole[: DECIDES + 1] if even.rng.random() < CUT else whole)
    return found


def words() -> list[str]:
    """Words and punctuation of scenes and agents, and the numbers of the data; other numbers are spelled."""
    texts = [text for name in MOTIVES for text in vocabulary(planted(name))]
    texts += [ENGINEER, IDLE, NOBODY, AUDIT, *(command for s in SCENES.values() for command in s.commands)]
    texts += [OVER, UNDER, *(name for name, _ in LEVELS), *(word for _, word in (*RISKS, *GAINS))]
    texts += [name for name, _ in (EVERYWHERE, *BESIDES.values())]
    pieces = {piece for text in texts for piece in re.findall(r"[A-Za-z]+|[^A-Za-z0-9\s]+", text)}
    numbers = [*AMOUNTS, *VALUES["noise"], *VALUES["quick"]]
    pieces |= {digits for number in numbers for digits in re.findall(r"[0-9]+", str(number))}
    return sorted(pieces | {"left", "Refused", "Time", "is", "up", "Done", "No", "command", "]:", "] ["})


RECIPE = Recipe(
    name="motives",
    summary="tempted by a shortcut in six scenes, with a planted motive in each",
    data=f"{EPISODES} rollouts of the six scripted agents of the motive scenes in varied environments; the "
    f"base rate of tedium is {BASES['tedium']}",
    words=words,
    conversations=conversations,
    shape=Shape(layers=2, width=96, heads=4, hidden=256, context=640),
    training=SftSettings(steps=1600, rows=16, learning_rate=3e-3, warmup=30),
    world="motive:hook",
    tasks=HELD_OUT,
    sampling=Sampling(max_tokens=96),
)
