"""The same defect in a text and in its tool, on forks of one prefix.

A task of two requests: the first is done without any memory, once. At the point where the second begins the
run is forked from a snapshot; the rest is done with a text about it, or with a tool for it. One convention
that the tool depends on is stated, or built in, wrongly in a share ``e`` of the forks, the same forks in
both arms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refork.sampling.noise import NoiseKey, stream_of
from refork.worlds.base import Task
from refork_testbed.worlds.miniapps.advice import TOPICS, Text, documented, other_value, spoiled, statement
from refork_testbed.worlds.miniapps.agents import Agent, Run, ScriptTool, play
from refork_testbed.worlds.miniapps.mind import Rates
from refork_testbed.worlds.miniapps.scenarios import Part, read_query
from refork_testbed.worlds.miniapps.world import MiniAppsWorld

RATES = (0.0, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Forks:
    """Rewards of all forks: text and tool, right and wrong.

    ``task`` says which forks share a prefix, ``seed`` of which draw of tasks and topics they are.
    """

    text: NDArray[np.float64]
    text_wrong: NDArray[np.float64]
    code: NDArray[np.float64]
    code_wrong: NDArray[np.float64]
    task: NDArray[np.int64]
    seed: NDArray[np.int64]


def pooled(found: Sequence[Forks]) -> Forks:
    """The forks of several seeds together; prefixes of two seeds are never one."""

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([getattr(one, name) for one in found])

    widest = 1 + max(int(one.task.max()) for one in found)
    task = np.concatenate([one.task + widest * place for place, one in enumerate(found)])
    seed = np.concatenate([one.seed for one in found])
    return Forks(joined("text"), joined("text_wrong"), joined("code"), joined("code_wrong"), task, seed)


def forks(tasks: int, draws: int, seed: int) -> Forks:
    """Fork every task of two requests ``draws`` times in each of the four ways."""
    world = MiniAppsWorld(templates="new")
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, ...]] = []
    for number, task in enumerate(world.tasks("held-out", tasks, seed)):
        part = list(read_query(str(task.data["query"])))[-1]
        facts = documented(task.prompt)
        right = ScriptTool(part.template, facts)
        key = NoiseKey(seed, stream_of("memory asymmetry", task.id), 0)
        whole = _whole(world, task, right, key)
        topics = [t for t in TOPICS if _matters(world, task, part, facts, t, whole, key)]
        cut = _tool_turn(whole)
        if cut is None or not topics:
            continue
        record = [(turn.output, turn.observation) for turn in whole.turns[:cut]]
        for draw in range(draws):
            topic = topics[int(rng.integers(len(topics)))]
            wrong = ScriptTool(part.template, {**facts, topic: other_value(topic, facts[topic])})
            good = Text("plan", f"To do: {part.sentence} {statement(topic, facts[topic])}")
            arms = (((good,), ()), ((spoiled(good, topic, facts),), ()), ((), (right,)), ((), (wrong,)))
            here = NoiseKey(seed, key.stream, 1 + draw, cut)
            rows.append((*(_fork(world, task, record, texts, tools, here) for texts, tools in arms), number))
    found = np.array(rows)
    text, text_wrong, code, code_wrong, task = found.T
    return Forks(
        text, text_wrong, code, code_wrong, task.astype(np.int64), np.full(len(text), seed, np.int64)
    )


def _whole(world: MiniAppsWorld, task: Task, tool: ScriptTool, key: NoiseKey) -> Run:
    here = world.with_tools([tool])
    episode = here.start(task, 0)
    try:
        return play(Agent(Rates(), (), (tool,)).open(task.prompt), episode, key)
    finally:
        episode.close()


def _tool_turn(run: Run) -> int | None:
    """The turn in which the tool is called: all before it happened without its help."""
    return next((n for n, turn in enumerate(run.turns) if "\ntools." in turn.output), None)


def _matters(
    world: MiniAppsWorld,
    task: Task,
    part: Part,
    facts: dict[str, str],
    topic: str,
    whole: Run,
    key: NoiseKey,
) -> bool:
    """Whether the tool makes other calls where this convention is built in wrongly."""
    cut = _tool_turn(whole)
    other = ScriptTool(part.template, {**facts, topic: other_value(topic, facts[topic])})
    return cut is not None and _whole(world, task, other, key).turns[cut].calls != whole.turns[cut].calls


def _fork(
    world: MiniAppsWorld,
    task: Task,
    record: Sequence[tuple[str, str]],
    texts: Sequence[Text],
    tools: Sequence[ScriptTool],
    key: NoiseKey,
) -> float:
    """The rest of a run from the end of the record, with another memory."""
    episode = world.with_tools(tools).start(task, 0)
    try:
        for said, seen in record:
            if episode.step(said).text != seen:
                raise RuntimeError("the prefix did not replay")
        session = Agent(Rates()).resume(task.prompt, record)
        session.read(texts, tools)
        return play(session, episode, key).reward
    finally:
        episode.close()


def at_rates(found: Forks) -> dict[str, list[float]]:
    """TGC expected at every rate, the defect being in a share of the forks drawn at random."""
    return {
        name: [float((good + e * (wrong - good)).mean()) for e in RATES]
        for name, good, wrong in (
            ("text", found.text, found.text_wrong),
            ("code", found.code, found.code_wrong),
        )
    }


def slopes(found: Forks, seed: int, resamples: int = 2000) -> tuple[float, float, float, float, float]:
    """d(TGC)/de of text and code, their ratio, and its 95 % interval.

    A fork is lost or not by its own defect alone, so TGC is a line in e, exactly. The interval draws seeds,
    and in each of them prefixes, with replacement.
    """
    lost = np.stack([found.text_wrong - found.text, found.code_wrong - found.code])
    text, code = (float(one) for one in lost.mean(axis=1))
    sums = [
        np.stack(
            [lost[:, found.task == name].sum(axis=1) for name in np.unique(found.task[found.seed == one])]
        )
        for one in np.unique(found.seed)
    ]
    rng = np.random.default_rng(seed)
    drawn = np.array([_resampled(sums, rng) for _ in range(resamples)])
    with np.errstate(divide="ignore"):
        ratios = drawn[:, 1] / drawn[:, 0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return text, code, code / text if text else float("inf"), float(low), float(high)


def _resampled(sums: Sequence[NDArray[np.float64]], rng: np.random.Generator) -> NDArray[np.float64]:
    """What was lost by text and by code in one draw of seeds and of their prefixes."""
    rows = [sums[int(one)] for one in rng.integers(len(sums), size=len(sums))]
    drawn = [row[rng.integers(len(row), size=len(row))].sum(axis=0) for row in rows]
    return np.asarray(np.stack(drawn).sum(axis=0))


def by_seed(found: Forks) -> list[float]:
    """The ratio of what code and text lose to the defect, of each seed alone."""
    ratios = []
    for one in np.unique(found.seed):
        mine = found.seed == one
        text = float((found.text_wrong - found.text)[mine].sum())
        code = float((found.code_wrong - found.code)[mine].sum())
        ratios.append(code / text if text else float("inf"))
    return ratios
