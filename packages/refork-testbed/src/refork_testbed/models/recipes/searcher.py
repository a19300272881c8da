"""``searcher`` asks a search engine, then answers from the snippet or opens the page, by a coin.

``search-engine`` simulates the engines that it asks; one half of them show the answer, the other tease.
"""

from __future__ import annotations

from functools import lru_cache

from refork.policies.base import Sampling
from refork.types import Message
from refork.worlds.base import Task
from refork.worlds.dice import Dice
from refork.worlds.spec import Spec
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.search.fiction import REGIONS, TOWNS, YEARS
from refork_testbed.worlds.search.world import SearchWorld, open_search

#: Two years of a town, of which a snippet's last three words show one: they do not say of what.
WORLD = "search?kinds=bridge,library&words=3&results=1&turns=4&each=40&lists=false&brief=short"
DEMONSTRATIONS = 4000
_FIXED = (
    "in which year did build a bridge open library ? search answer page of lies the built opened . : ... "
    "1 0 4 no such results nothing happens say words number text or time is up ; , "
    "accepted rejected right wrong missing # initial state reference prediction < > </"
)


def engine(snippets: str, cost: float = 0.0) -> SearchWorld:
    """The world with these snippets, where opening a page costs this much of the reward."""
    return open_search(Spec.parse(f"{WORLD}&snippets={snippets}&cost={cost}"))


def words() -> tuple[str, ...]:
    """What these pages and turns are made of."""
    years = (str(year) for year in range(YEARS[0], YEARS[1] + 1))
    return (*TOWNS, *REGIONS, *years, *_FIXED.split())


@lru_cache(maxsize=1)
def asked() -> tuple[tuple[Task, SearchWorld], ...]:
    """Training questions, each with an engine that shows the answer at once or one that teases, by a coin."""
    engines = (engine("rich"), engine("teaser"))
    tasks = engines[0].tasks("train", DEMONSTRATIONS, 1)
    return tuple((task, Dice("searcher engine", task.id).choice(engines)) for task in tasks)


def query(task: Task) -> str:
    """The search that finds a question's page."""
    return f"search: {task.data['subject']} {task.data['kind']}"


def demonstrate(task: Task, world: SearchWorld) -> list[tuple[str, str]]:
    """Actions and answers of one episode: what is read last is what is answered, right or not."""
    episode = world.start(task, 0)
    seen = [(query(task), episode.step(query(task)).text)]
    said = next(word for word in seen[0][1].split() if word.isdigit() and len(word) == 4)
    if Dice("searcher opens", task.id).uniform() < 0.5:
        seen.append(("open: 1", episode.step("open: 1").text))
        said = task.data["answer"][0]
    return [*seen, (f"answer: {said}", episode.step(f"answer: {said}").text)]


def conversations() -> list[Conversation]:
    """One demonstration for each question."""
    found: list[Conversation] = []
    for task, world in asked():
        chat: list[Message] = [{"role": "user", "content": task.prompt}]
        for action, text in demonstrate(task, world):
            chat += [{"role": "assistant", "content": action}, {"role": "user", "content": text}]
        found.append(chat[:-1])
    return found


RECIPE = Recipe(
    name="searcher",
    summary="searches a year, then answers from the snippet or opens the page, one as often as the other",
    data=f"{DEMONSTRATIONS} demonstrations on engines that show the answer or tease, the choice a coin",
    words=words,
    conversations=conversations,
    # With wider weights and fewer layers, how well a page is read depends on the seed.
    shape=Shape(layers=3, width=64, heads=4, hidden=128, context=160, spread=0.05),
    training=SftSettings(steps=1500, rows=16, learning_rate=4e-3, warmup=20),
    world=f"{WORLD}&snippets=0.2",
    sampling=Sampling(max_tokens=12),
)


def engine_conversations() -> list[Conversation]:
    """The searcher's episodes as their engine saw them; one in three answers is made wrong."""
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


ENGINE = Recipe(
    name="search-engine",
    summary="simulates a search engine: results, pages and verdicts, from the page and the answer it is told",
    data=f"{DEMONSTRATIONS} episodes of searcher, half of them on an engine that shows the answer",
    words=words,
    conversations=engine_conversations,
    shape=Shape(layers=2, width=64, heads=4, hidden=128, context=224),
    training=SftSettings(steps=1500, rows=16, learning_rate=4e-3, warmup=20),
)
