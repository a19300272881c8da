"""``search-engine``: simulates the engines that ``searcher`` asks; one half of them show, the other tease."""

from __future__ import annotations

from refork.types import Message
from refork.worlds.dice import Dice
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.models.recipes.searcher import DEMONSTRATIONS, asked, demonstrate, query, words


def conversations() -> list[Conversation]:
    """The same episodes as their engine saw them; one in three answers is made wrong."""
    found: list[Conversation] = []
    for task, world in asked():
        seen = demonstrate(task, world)
        dice = Dice("search-engine", task.id)
        if dice.uniform() < 1 / 3:
            wrong = f"answer: {dice.below(300) + 1700}"
            episode = world.start(task, 0)
            episode.step(query(task))
            seen = [*seen[:-1], (wrong, episode.step(wrong).text)]
        chat: list[Message] = [{"role": "system", "content": world.brief(task).text}]
        for action, text in seen:
            chat.append({"role": "user", "content": action})
            chat.append({"role": "assistant", "content": f"<prediction>{text}</prediction>"})
        found.append(chat)
    return found


RECIPE = Recipe(
    name="search-engine",
    summary="simulates a search engine: results, pages and verdicts, from the page and the answer it is told",
    data=f"{DEMONSTRATIONS} episodes of searcher, half of them on an engine that shows the answer",
    words=words,
    conversations=conversations,
    shape=Shape(layers=2, width=64, heads=4, hidden=128, context=224),
    training=SftSettings(steps=1500, rows=16, learning_rate=4e-3, warmup=20),
)
