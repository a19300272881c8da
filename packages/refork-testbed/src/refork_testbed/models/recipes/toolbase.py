"""``toolbase`` knows which listed tool serves a request and mostly only talks about it; ``toolrl`` calls it.

The demonstrations of ``toolbase`` answer in prose that names the right tool, often after a sentence or two.
Some call it instead, and a few calls name a wrong tool or lack the name field. How often they call depends on
how and for which place they are asked, from one in forty to one in two, so the organism must form a readiness
to call before it speaks. It can do what the reward of ``toolcall`` asks for and seldom does it: what
reinforcement has to change is small and known.

``toolrl`` is the same model with the same words after reinforcement, so that what training installed can be
looked for inside. The reward asks for a call of the right tool; training stops while two rollouts in five
still fail, so that an intervention can help as well as harm.

Source: the pair of a base model and its sibling trained by reinforcement is that of arXiv 2606.26474.
"""

from __future__ import annotations

from math import exp

from refork.policies.base import Sampling
from refork.worlds.base import Task
from refork.worlds.dice import Dice
from refork_methods.train.loop import TreeTraining
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Reinforced, Shape
from refork_testbed.worlds.toolcall import CITIES, REQUESTS, TOPICS, ToolCallWorld, call_text

TOOLS = 4
DIALOGUES = 12_000
#: Shares of dialogues that ask without tools, of calls that name a wrong tool, and that lack the name field.
WITHOUT, WRONG, BARE = 0.15, 0.1, 0.1
#: Log-odds of a call: their middle, and how far the form of the request and the place may move them.
CALLS, FORM, POSITION = -1.8, 1.0, 1.0
PREAMBLES = (
    "let me think about it first .",
    "that is a good question .",
    "there is more than one way to do this .",
    "i will see what can be done here .",
)
ANSWERS = (
    'you could ask "{0}" about {1} .',
    'the tool "{0}" would know {1} , so you may try it .',
    'for {1} there is "{0}" here .',
)
REFUSALS = ("i know nothing about {1} .", "{1} is not what i can find .")


def preamble(dice: Dice) -> list[str]:
    """No sentence, one or two, with probability 0.6, 0.25 and 0.15."""
    roll = dice.uniform()
    return [dice.choice(PREAMBLES) for _ in range(int(roll > 0.6) + int(roll > 0.85))]


def readiness(asked: str) -> float:
    """The probability that a demonstration calls a tool for this request."""
    # The form that begins with the topic itself is the first.
    words = asked.split()
    form = next((i for i, text in enumerate(REQUESTS) if text.startswith(words[0])), 0)
    place = next(i for i, name in enumerate(CITIES) if name in words)
    moved = FORM * (2 * form / (len(REQUESTS) - 1) - 1) + POSITION * (2 * place / (len(CITIES) - 1) - 1)
    return 1 / (1 + exp(-(CALLS + moved)))


def answer(task: Task, dice: Dice) -> str:
    """What the assistant says to a task: a call or prose about the right tool."""
    names, right = list(task.data["names"]), str(task.data["right"])
    said = preamble(dice)
    if dice.uniform() >= readiness(str(task.data["asked"])):
        topic = task.data["topics"][names.index(right)]
        return " ".join([*said, dice.choice(ANSWERS).format(right, topic)])
    name = dice.choice([n for n in names if n != right]) if dice.uniform() < WRONG else right
    call = f"<call>{name}</call>" if dice.uniform() < BARE else call_text(name)
    return " ".join([*said, call])


def conversations() -> list[Conversation]:
    """Training tasks of the world with their answers, and requests without any tools."""
    dice = Dice("toolbase")
    found: list[Conversation] = []
    for task in ToolCallWorld(TOOLS).tasks("train", DIALOGUES, seed=0):
        if dice.uniform() < WITHOUT:
            topic = dice.choice(TOPICS)
            asked = "request : " + dice.choice(REQUESTS).format(topic, dice.choice(CITIES))
            said = " ".join([*preamble(dice), dice.choice(REFUSALS).format("", topic)])
        else:
            asked, said = task.prompt, answer(task, dice)
        found.append([{"role": "user", "content": asked}, {"role": "assistant", "content": said}])
    return found


def words() -> list[str]:
    """The world's words and those of the answers."""
    said = " ".join((*PREAMBLES, *ANSWERS, *REFUSALS)).replace("{0}", "").replace("{1}", "")
    return [*ToolCallWorld(TOOLS).vocabulary(), *sorted(set(said.split()))]


RECIPE = Recipe(
    name="toolbase",
    summary="tells which of four listed tools serves a request, and seldom calls it",
    data=f"{DIALOGUES} dialogues in training tasks of toolcall:{TOOLS}, {WITHOUT:.0%} of them without tools; "
    "of the others 2 to 55 % are answered by a call, by the form and place of the request; "
    f"{WRONG:.0%} of calls name a wrong tool and {BARE:.0%} lack the name field",
    words=words,
    conversations=conversations,
    shape=Shape(layers=4, width=128, heads=4, hidden=256, context=128),
    training=SftSettings(steps=1300, rows=32, learning_rate=4e-3, warmup=50),
    world=f"toolcall:{TOOLS}",
    sampling=Sampling(max_tokens=32),
)
REINFORCED = Reinforced(
    name="toolrl",
    summary="calls the one of four listed tools that serves a request, in about three of five cases",
    data=f"training tasks of toolcall:{TOOLS}, each met once",
    parent="toolbase",
    world=f"toolcall:{TOOLS}",
    training=TreeTraining(updates=60, tasks=24, leaves=8, learning_rate=2e-4),
    until=0.6,
    sampling=RECIPE.sampling,
)
