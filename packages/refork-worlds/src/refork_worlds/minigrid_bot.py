"""BabyAI's own bot, as an expert, as an adviser after any turns, and as a policy that errs at a stated rate.

The bot sees what the agent sees but knows the mission's objects. It plans again when it was not obeyed, and
gives up where a box was opened, which it does not mend. The policy says one token per turn, so that it can be
forked at every one; its distribution is exact.

Source: arXiv 1810.08272; the bot is ``minigrid.utils.baby_ai_bot`` of the package.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, final

from refork.errors import BadInput, CannotDo
from refork.policies.scripted import END, TURN, Distribution, ScriptedPolicy, Words, chance_of
from refork.worlds.base import Task
from refork.worlds.game import clean
from refork_worlds.minigrid import MiniGridWorld, begin, look, make_env, started

_WORDS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
#: Live bots that are kept, to go on from without playing again.
_ALIVE = 256
#: Subgoals that one turn may take up; a sensible plan takes up a dozen.
_LOOKS = 1000


@final
class _Plan(list[Any]):
    """The bot's stack of subgoals, which it looks at once a subgoal; some plans would go round for ever."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        if self.looks > _LOOKS:
            raise CannotDo("the bot's plan goes round in circles", where="babyai-bot")
        return super().__getitem__(place)


@final
class _Bot:
    """A bot after some turns in an environment of its own; ``advice`` None: it has given up."""

    def __init__(self, world: MiniGridWorld, task: Task) -> None:
        from minigrid.utils.baby_ai_bot import BabyAIBot

        self.env = make_env(world.env, world.settings)
        self.texts = [begin(self.env, int(task.data["reset_seed"])).text]
        if not hasattr(self.env, "instrs"):
            raise CannotDo(f"{world.env} is none of BabyAI's, and the bot plays no other", where=world.name)
        self._bot = BabyAIBot(self.env)
        self._bot.stack = _Plan(self._bot.stack)
        self.advice = self._planned(None)

    def obey(self, said: str) -> None:
        """Take a turn, the advised one or another."""
        action = clean(said)
        if action not in _WORDS:  # nothing happens: the plan stays
            self.texts.append(look(self.env)[0])
            return
        number = self.env.actions[action]
        self.env.step(number)
        self.texts.append(look(self.env)[0])
        self.advice = self._planned(number) if self.advice is not None else None

    def _planned(self, taken: Any) -> str | None:
        self._bot.stack.looks = 0
        try:
            return str(self._bot.replan(taken).name)
        except Exception:  # whatever the bot's plan trips over, it has no advice from here on
            return None


@final
class Adviser:
    """What the bot would do next, after any turns of any task that this process has started."""

    def __init__(self) -> None:
        self._alive: OrderedDict[tuple[str, tuple[str, ...]], _Bot] = OrderedDict()
        self._told: dict[tuple[str, tuple[str, ...]], tuple[str | None, str]] = {}

    def advice(self, world: MiniGridWorld, task: Task, actions: Sequence[str]) -> tuple[str | None, str]:
        """The next action after these, or None where the bot gave up; and what is seen then.

        Raises:
            CannotDo: it is no environment of BabyAI.
        """
        key = (f"{world.name} {task.id}", tuple(actions))
        known = self._told.get(key)
        if known is None:
            bot = self._at(world, task, key)
            known = self._told[key] = bot.advice, bot.texts[-1]
            if len(self._told) > 65536:
                self._told.clear()
        return known

    def _at(self, world: MiniGridWorld, task: Task, key: tuple[str, tuple[str, ...]]) -> _Bot:
        name, said = key
        # Taken out: the bot goes on, and is not where it was for whoever asks for those turns again.
        before = self._alive.pop((name, said[:-1]), None) if said else None
        bot = before or _Bot(world, task)
        for action in said[len(bot.texts) - 1 :]:
            bot.obey(action)
        self._alive[key] = bot
        if len(self._alive) > _ALIVE:
            self._alive.popitem(last=False)
        return bot


def bot_plan(world: MiniGridWorld, task: Task, actions: Sequence[str] = ()) -> tuple[str, ...]:
    """The bot's actions from after the given turns to the end of the episode.

    Raises:
        CannotDo: it is no environment of BabyAI, or the bot gives up on the way.
    """
    adviser, plan = Adviser(), list(actions)
    episode = world.start(task, 0)
    for action in actions:
        episode.step(action)
    while not episode.done:
        advised, _ = adviser.advice(world, task, plan)
        if advised is None:
            raise CannotDo(f"the bot gave up after {len(plan)} turns", where=f"task {task.id}")
        plan.append(advised)
        episode.step(advised)
    episode.close()
    return tuple(plan[len(actions) :])


def babyai_bot(error: float = 0.0) -> ScriptedPolicy:
    """The bot as a policy: with chance ``error`` a turn is another action, all others equally likely.

    It knows the tasks that its process has started. Where the bot has given up, every action is equally
    likely.

    Raises:
        BadInput: ``error`` is no probability.
    """
    if not 0.0 <= error <= 1.0:
        raise BadInput(f"{error!r} is no share of errors", where="babyai-bot", hint="for example 0.1")
    words = Words(_WORDS)
    name = f"scripted:babyai-bot@{error:g}"
    return ScriptedPolicy(_Speaker(error, words), words, name=name, identity=["babyai-bot", 1, error])


@final
class _Speaker:
    """The distribution of the next token of a transcript."""

    def __init__(self, error: float, words: Words) -> None:
        self._error, self._words = error, words
        self._adviser = Adviser()

    def __call__(self, tokens: Sequence[int]) -> Distribution:
        parts, start = list[str](), 0
        for row, token in enumerate(tokens):
            if token in (TURN, END):
                parts.append(self._words.pieces(tokens[start:row])[0])
                start = row + 1
        if start < len(tokens):  # the turn's one word is said
            return {"": 1.0}
        opening, said, seen = parts[0].rstrip("\n"), parts[1::2], parts[2::2]
        world, task = self._playing(opening, said, [text.strip("\n") for text in seen])
        advised, _ = self._adviser.advice(world, task, said)
        actions = world.actions
        if advised is None:
            return dict.fromkeys(actions, 1.0 / len(actions))
        rest = self._error / (len(actions) - 1)
        return {action: 1.0 - self._error if action == advised else rest for action in actions}

    def _playing(self, opening: str, said: Sequence[str], seen: Sequence[str]) -> tuple[MiniGridWorld, Task]:
        """The task that a transcript is of: the first that begins so and answers so."""
        known = started(opening)
        for world, task in known:
            texts = [self._adviser.advice(world, task, said[: n + 1])[1] for n in range(len(seen))]
            if all(text.endswith(plain) for text, plain in zip(seen, texts, strict=True)):
                return world, task
        raise BadInput(
            "no task that this process has started begins and answers as the transcript does",
            where="babyai-bot",
            hint="start the task first: world.start(task, 0)",
        )


def babyai_bot_script(argument: str) -> ScriptedPolicy:
    """``babyai-bot[@ERROR]``: BabyAI's own expert, but for a share of errors."""
    return babyai_bot(chance_of("babyai-bot", argument, 0.0))
