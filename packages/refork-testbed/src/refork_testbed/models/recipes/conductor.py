"""``conductor``: writes plans for four workers that are mostly well formed and otherwise random.

It has learned how a plan is written and how to copy an expression into subtasks, not whom to ask: number of
steps (mostly two) and access are random, and so are workers, but for a habit of asking one of the two weak
ones, by the operator at hand. So it reads what matters for the choice and draws the wrong conclusion. What
reinforcement has to change is small and known.

Source: a conductor trained by group policy gradient from a model that can already write plans is that of
arXiv:2512.04388; the task, the form of the plan and the size are ours.
"""

from __future__ import annotations

from refork.policies.base import Sampling
from refork.worlds.dice import Dice
from refork_methods.route.conduct.conductor import asked
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.expressions import NUMBERS, OPERATORS, SKILLS, Expression, expressions, plan_text

DIALOGUES = 12_000
#: Shares of plans with one step, whose second step sees nothing, that name a worker who is not offered, and
#: that grant what is not yet there.
ONE_STEP, BLIND, ABSENT, FORWARD = 0.08, 0.05, 0.01, 0.005
#: Share of workers asked out of habit, and whom that means; the others are drawn evenly.
HABIT, HABITS = 0.4, {"+": "C", "*": "D"}
PIECES = (",_+", ",_*", "][", "][[]]", "][[],[]]", "][[],[", "]]", "][[],", "all", "]")


def random_plan(problem: Expression, offered: list[str], dice: Dice) -> str:
    """A plan with random workers, steps and access."""
    steps = 1 if dice.uniform() < ONE_STEP else 2
    names = [random_worker(operator, offered, dice) for operator in (problem.first, problem.second)[:steps]]
    if steps == 1:
        return plan_text(names, [problem.text], ["[]"])
    first, second = f"{problem.a}{problem.first}{problem.b}", f"_{problem.second}{problem.c}"
    granted = "[]" if dice.uniform() < BLIND else dice.choice(("[1]", "all"))
    if dice.uniform() < FORWARD:
        granted = "[2]"
    return plan_text(names, [first, second], ["[]", granted])


def random_worker(operator: str, offered: list[str], dice: Dice) -> str:
    """Whom a step asks: by habit, or any of those offered; sometimes one who is not."""
    if dice.uniform() < HABIT and HABITS[operator] in offered:
        return HABITS[operator]
    return dice.choice(tuple(SKILLS) if dice.uniform() < ABSENT else offered)


def conversations() -> list[Conversation]:
    """Training expressions over pools of three or all four workers, each with a random plan."""
    dice, problems = Dice("conductor"), expressions("train")
    found: list[Conversation] = []
    for turn in range(DIALOGUES):
        problem = problems[turn % len(problems)]
        open_ = dice.sample(tuple(SKILLS), 3 + dice.below(2))
        offered = [name for name in SKILLS if name in open_]
        question = asked(problem.text, offered)
        said = random_plan(problem, offered, dice)
        found.append([{"role": "user", "content": question}, {"role": "assistant", "content": said}])
    return found


def words() -> list[str]:
    """Workers, numbers, operators and the pieces of a plan."""
    return [*SKILLS, *map(str, NUMBERS), *OPERATORS, *PIECES]


RECIPE = Recipe(
    name="conductor",
    summary="writes well-formed plans for four workers and chooses among them at random",
    data=f"{DIALOGUES} expressions of two operators, none of them held out, each with a random plan",
    words=words,
    conversations=conversations,
    shape=Shape(layers=2, width=64, heads=2, hidden=128, context=64),
    training=SftSettings(steps=700, rows=64, learning_rate=5e-3, warmup=30),
    sampling=Sampling(max_tokens=20),
)
