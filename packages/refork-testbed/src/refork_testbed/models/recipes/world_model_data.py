"""What the stages of ``world-model`` share: real trajectories, their words, and how well a stage does.

The trajectories are recorded when they are first needed: scripted actors in a real shell and in real SQLite
databases, one episode a task. Held-out tasks are of compositions that no training task has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Regex, pre_tokenizers

from refork import stats
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.settings import home
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.evaluate import evaluate
from refork_methods.simulate.prompt import answer
from refork_methods.simulate.world import WorldModel
from refork_testbed.models.planted import Planted
from refork_testbed.models.recorded import recorded
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


def trajectories(split: Split, counts: dict[str, int], progress: Progress = silent) -> list[EnvTrajectory]:
    """Recorded episodes of ``counts`` tasks of each world, the worlds taken in turn."""
    place = home() / "recordings" / worlds_digest(*MODULES)[:12]
    found = [recorded(spec, split, count, 0, place, progress) for spec, count in counts.items()]
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
