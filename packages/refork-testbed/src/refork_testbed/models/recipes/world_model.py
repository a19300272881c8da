"""``world-model`` and the stages before it: answers as a shell or a small database would.

Three stages train one simulator. ``world-model-cpt`` has read what these worlds answer, every turn a target.
``world-model-sft`` says first what decides an answer, then the answer: the reasoning is the note that the
environment itself gives, the rows or lines that an action touches, as they are at that moment.
``world-model`` was then reinforced.

What they learn from is recorded when it is first needed: scripted actors in a real shell and in real SQLite
databases, one episode a task. Held-out tasks are of compositions that no training task has.

Source: arXiv 2606.24597 for the three stages (the last: GSPO, one target of each trajectory, nine tenths
rubric and one tenth rule). There a large model that has read much before, here a new one; there a teacher
writes the reasoning, and the rubric is a model, here a comparison of texts. Rates and group are ours.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, pre_tokenizers

from refork import stats
from refork.errors import BadInput
from refork.growing.recorder import read_trajectories, record, write_trajectories
from refork.growing.recorder import trajectories as recorded_trajectories
from refork.plain import content_hash
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.settings import home
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.environment import Environment, EnvTrajectory
from refork.worlds.open import open_world
from refork_methods.simulate.cpt import train_cpt
from refork_methods.simulate.data import loss_weights
from refork_methods.simulate.evaluate import evaluate
from refork_methods.simulate.prompt import answer, pick
from refork_methods.simulate.reward import HybridReward
from refork_methods.simulate.rl import RlSettings, train_rl
from refork_methods.simulate.rubric import RuleRubric
from refork_methods.simulate.world import WorldModel
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import WeightedSettings
from refork_testbed.models.packed_training import train_packed
from refork_testbed.models.planted import Planted, planted_model
from refork_testbed.models.recipe import Made, Staged
from refork_testbed.models.registry import worlds_digest
from refork_testbed.models.tokenizer import make_tokenizer
from refork_testbed.worlds.terminal.world import TerminalWorld
from refork_worlds.tools.world import ToolsWorld

#: The worlds, and how many training tasks of each are recorded.
WORLDS: dict[str, int] = {"terminal?brief=labels": 12_000, "tools?brief=labels": 6_000}
MODULES = (TerminalWorld.__module__, ToolsWorld.__module__)
#: Held-out tasks of each world that a card's figures are taken on, and turns of each.
HELD_OUT, TURNS = 60, 3
SHAPE = Planted(layers=4, width=256, heads=4, hidden=768, context=1024)
#: Room for a note and a screen of output; the likeliest answer, never drawn again.
SAMPLING = Sampling(temperature=0.0, max_tokens=200)
#: Pieces that occur less often than this are spelled in characters.
SELDOM = 5

#: What is one token: a tag; a key of JSON with the signs around it; a folder, a file's name, the name of a
#: line, a word, a number, a run of signs. So a path is two tokens, and a row of JSON little but its values.
_KINDS = (
    r"</?[a-z]+>",
    r"[^A-Za-z0-9\s<]*\"[A-Za-z_]+\":[\[{]*(?:\"(?![A-Za-z_]+\":))?",
    r"[A-Za-z]+/",
    r"[A-Za-z]+\.[a-z]+",
    r"[A-Z][a-z]:(?=\S)",
    r"[A-Za-z_]+",
    r"[0-9]+",
    r"[^A-Za-z0-9\s<]+",
    r"<",
)
_PIECES = re.compile("|".join(_KINDS))
CPT = WeightedSettings(
    steps=300,
    rows=4,
    schedule=Schedule(peak=2e-4, shape="cosine", warmup=50, final=0.3),
    betas=(0.9, 0.98),
    half=True,
)
SFT = WeightedSettings(
    steps=10_000,
    rows=3,
    schedule=Schedule(peak=6e-4, shape="cosine", warmup=100, final=0.02),
    betas=(0.9, 0.98),
    half=True,
)
RL = RlSettings(
    updates=24,
    per_update=24,
    group=6,
    max_tokens=SAMPLING.max_tokens,
    minibatches=2,
    schedule=Schedule(peak=2e-5, shape="linear", warmup=4, final=0.2),
)


def recorded(
    spec: str, split: Split, count: int, seed: int, path: Path, progress: Progress = silent
) -> list[EnvTrajectory]:
    """One episode of a scripted actor in each of ``count`` tasks, as its environment saw it.

    ``path`` is a folder that keeps them; it belongs to one state of the sources. Episodes in which the world
    broke are left out.

    Raises:
        BadInput: the world cannot be recorded, or it broke in more than one episode of a hundred.
    """
    name = content_hash([spec, split, count, seed])[:16]
    file = path / f"{name}.jsonl"
    if not file.exists():
        world = open_world(spec)
        if not isinstance(world, Environment):
            raise BadInput(f"{spec} cannot be recorded", where="organism")

        def report(
            stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
        ) -> None:
            progress(f"{stage} {spec}", done, total, tokens=tokens, waiting=waiting)

        with Tree.memory() as tree:
            told = record(world, world.tasks(split, count, seed), tree, seeds=(seed,), progress=report)
            # What was recorded until an interrupt must not be kept as if it were all.
            if told.stopped:
                raise KeyboardInterrupt
            if told.errors * 100 > count:
                raise BadInput(f"{told.errors} of {count} episodes broke: {told.reasons[0]}", where=spec)
            path.mkdir(parents=True, exist_ok=True)
            # Two processes may record the same at once: each writes a file of its own, and either is whole.
            part = file.with_suffix(f".{os.getpid()}")
            write_trajectories(part, recorded_trajectories(tree))
            part.replace(file)
    return list(read_trajectories(file))


def trajectories(
    split: Split, counts: dict[str, int], progress: Progress = silent, *, seed: int = 0
) -> list[EnvTrajectory]:
    """Recorded episodes of ``counts`` tasks of each world, the worlds taken in turn."""
    place = home() / "recordings" / worlds_digest(*MODULES)[:12]
    found = [recorded(spec, split, count, seed, place, progress) for spec, count in counts.items()]
    longest = max(map(len, found))
    return [items[i] for i in range(longest) for items in found if i < len(items)]


def lessons(progress: Progress = silent) -> list[EnvTrajectory]:
    """The training episodes."""
    return trajectories("train", WORLDS, progress)


def held_out(tasks: int, progress: Progress = silent) -> list[EnvTrajectory]:
    """Episodes of so many held-out tasks of each world."""
    return trajectories("held-out", dict.fromkeys(WORLDS, tasks), progress)


def texts(items: Iterable[EnvTrajectory]) -> Iterator[str]:
    """Everything that is read or said about trajectories."""
    for item in items:
        yield item.brief.text
        for turn in item.turns:
            yield turn.action
            yield answer(turn.observation)
            yield answer(turn.observation, turn.note)


def tokenizer_of(items: Iterable[EnvTrajectory], context: int) -> Any:
    """A tokenizer whose tokens are the pieces of trajectories that are not seldom, and ASCII characters."""
    counts = Counter(piece for text in texts(items) for piece in _PIECES.findall(text))
    known = sorted(piece for piece, count in counts.items() if count >= SELDOM)
    tokenizer = make_tokenizer(known, context)
    pieces = Regex("|".join(f" ?{kind}" for kind in _KINDS) + r"|\s")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(pieces, behavior="isolated")
    return tokenizer


def world_model(policy: LocalPolicy, *, think: bool = False) -> WorldModel:
    """A stage as a world model; ``think``: it is made to begin with its reasoning."""
    return WorldModel(policy, settings=SAMPLING, think=think, retries=0)


def measure(policy: LocalPolicy, progress: Progress = silent, *, think: bool = False) -> Json:
    """Exact match on turns of held-out tasks whose answer can be known, by world, with Wilson intervals."""
    model = world_model(policy, think=think)
    turns = evaluate(model, held_out(HELD_OUT, progress), turns=TURNS, seed=0, progress=progress).turns
    rows: Json = {}
    for domain in sorted({turn.domain for turn in turns}):
        hits = [turn.exact for turn in turns if turn.domain == domain and turn.deterministic]
        interval = stats.wilson(sum(hits), len(hits))
        rows[domain] = {
            "turns": len(hits),
            "rate": interval.estimate,
            "low": interval.low,
            "high": interval.high,
        }
    covered = sum(turn.prediction is not None for turn in turns) / len(turns)
    said = "; ".join(
        f"{name} {row['rate']:.3f} [{row['low']:.3f}, {row['high']:.3f}] of {row['turns']}"
        for name, row in rows.items()
    )
    return {
        "exact": rows,
        "coverage": covered,
        "told": f"Next observations of held-out tasks met to the letter (turns whose answer can be known, "
        f"95 % Wilson intervals): {said}; coverage {covered:.3f}; likeliest answers, one try.",
    }


def begin(progress: Progress) -> LocalPolicy:
    """A new model whose tokens are the words of the recordings."""
    tokenizer = tokenizer_of(lessons(progress), SHAPE.context)
    return LocalPolicy(planted_model(SHAPE, tokenizer), tokenizer, name="world-model-cpt")


def read(policy: LocalPolicy, progress: Progress) -> Made:
    """Next-token loss on the answers of all recorded turns, weighed by turn class."""
    done = train_cpt(policy, lessons(progress), CPT, weigh=loss_weights, progress=progress)
    how = (
        f"{done.facts['steps']} steps of {CPT.rows} trajectories ({done.facts['tokens']} tokens in "
        f"all of them), AdamW, rate {CPT.schedule.peak}, cosine; last loss {done.facts['loss_last']:.3f} nats"
    )
    return Made(done.log, done.facts | {"how": how})


def reason(policy: LocalPolicy, progress: Progress) -> Made:
    """Every turn of the recordings with its note as the reasoning before the answer."""
    done = train_packed(policy, lessons(progress), SFT, progress=progress)
    how = (
        f"{done.facts['steps']} steps of {SFT.rows} trajectories with all their turns as targets "
        f"({done.facts['targets']} in all), AdamW, rate {SFT.schedule.peak}, cosine; last loss "
        f"{done.facts['loss_last']:.3f} nats"
    )
    return Made(done.log, done.facts | {"how": how})


def reinforced(policy: LocalPolicy, progress: Progress) -> Made:
    """Group policy gradient on one drawn turn of each recorded episode whose answer can be known."""
    items = pick(lessons(progress), seed=0, turns="exact")
    done = train_rl(policy, items, HybridReward(RuleRubric(slope=True)), RL, progress=progress)
    first, last = done.facts["first"], done.facts["last"]
    how = (
        f"{done.facts['updates']} updates of {RL.per_update} targets x {RL.group} answers "
        f"(GSPO), rate {RL.schedule.peak}; reward {first['reward']:.3f} in the first tenth, "
        f"{last['reward']:.3f} in the last, "
        f"sampled exact match {first['exact']:.3f} and {last['exact']:.3f}"
    )
    return Made(done.log, done.facts | {"how": how})


CPT_RECIPE = Staged(
    name="world-model-cpt",
    summary="has read what a shell and small databases answer, and continues in their manner",
    data="recorded episodes of scripted actors: "
    + ", ".join(f"{count} training tasks of `{spec}`" for spec, count in WORLDS.items()),
    begin=begin,
    train=read,
    measure=measure,
    reads=lessons,
    sampling=SAMPLING,
)
SFT_RECIPE = Staged(
    name="world-model-sft",
    summary="says what decides the answer of a shell or a small database, and then the answer",
    data="the episodes of `world-model-cpt`, with the environments' notes as reasoning",
    parent="world-model-cpt",
    train=reason,
    measure=measure,
    reads=lessons,
    sampling=SAMPLING,
)
RECIPE = Staged(
    name="world-model",
    summary="answers as a shell or a small database would, and says first what decides the answer",
    data="one turn of each episode of `world-model-cpt`; rewarded is the text in the tag: text comparison "
    "with the real answer (0.9) and exact match (0.1)",
    parent="world-model-sft",
    train=reinforced,
    measure=measure,
    reads=lessons,
    sampling=SAMPLING,
)
