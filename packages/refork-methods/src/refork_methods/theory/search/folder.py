"""A search in a folder: begun, resumed, read again, and written out for people.

``events.jsonl`` is the record, and all there is to it: every line's digest covers the one before.
``run.json`` is the recipe. The rest is written anew from them: ``theories/LABEL.yaml``, ``trials/*.csv``,
``leaderboard.csv``, ``leaderboard.svg`` and ``tree.db``.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

from refork.chat import PolicyChat
from refork.errors import BadInput, DiskFull
from refork.interrupt import Interrupt
from refork.plain import canonical, from_json
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.progress import Progress, silent, waits
from refork.sandbox import Sandbox
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.theory.domains import domain_named
from refork_methods.theory.grammar import Domain
from refork_methods.theory.read import Foreign, write_csv_trials
from refork_methods.theory.report import leaderboard_figure
from refork_methods.theory.search.chat import ChatScientist
from refork_methods.theory.search.loop import Outcome, TheorySearch
from refork_methods.theory.search.on_tree import record_on_tree
from refork_methods.theory.search.participants import Participants, open_participants
from refork_methods.theory.search.record import EVENTS, Record
from refork_methods.theory.search.scientist import Scientist
from refork_methods.theory.search.scripted import ScriptedScientist
from refork_methods.theory.search.settings import TheorySettings
from refork_methods.theory.search.spec import TheorySpec

RECIPE = "run.json"
#: Tokens of one answer of a model, unless said otherwise.
ANSWER = 8192


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a search is.

    ``participants``: ``simulated:THEORY`` or ``csv:FILE``; ``noise``: share of random choices of simulated
    ones; ``scientist``: ``scripted`` or ``chat:POLICY``.
    """

    domain: str
    seeds: tuple[Json, Json]
    participants: str
    noise: float = 0.0
    foreign: Foreign = "drop"
    scientist: str = "scripted"
    max_tokens: int = ANSWER
    settings: TheorySettings = field(default_factory=TheorySettings)

    def to_json(self) -> Json:
        """Plain JSON."""
        told: Json = json.loads(canonical(asdict(self)))
        return told


def open_scientist(
    spec: str, settings: TheorySettings, *, max_tokens: int = ANSWER, progress: Progress = silent
) -> Scientist:
    """``scripted``, or ``chat:POLICY`` asked at temperature 0.7. Raises BadInput for another."""
    if spec == "scripted":
        return ScriptedScientist()
    kind, _, name = spec.partition(":")
    if kind != "chat" or not name:
        raise BadInput(f"scientist {spec!r}", hint="scripted, or chat:openai:URL#MODEL")
    policy = open_policy(name, on_wait=waits(progress))
    return ChatScientist(PolicyChat(policy, Sampling(temperature=0.7, max_tokens=max_tokens), settings.seed))


def people_of(recipe: Recipe, domain: Domain, sandbox: Sandbox) -> Participants:
    """The participants of a recipe. Raises BadInput."""
    return open_participants(
        recipe.participants, domain, sandbox, random_share=recipe.noise, held_out=recipe.settings.held_out,
        seed=recipe.settings.seed, foreign=recipe.foreign,
    )  # fmt: skip


def run_theories(
    recipe: Recipe,
    out: Path,
    sandbox: Sandbox,
    *,
    scientist: Scientist | None = None,
    progress: Progress = silent,
) -> tuple[TheorySearch, Outcome]:
    """Search in a folder; the same call on it resumes. Ctrl-C stops after the step under way.

    Raises:
        BadInput: a seed, file or setting that is not allowed.
        Mismatch: the folder holds another search, or its record was changed.
        KeyboardInterrupt: it was stopped; what was done is kept.
    """
    domain = domain_named(recipe.domain)
    seeds = (TheorySpec.from_json(recipe.seeds[0]), TheorySpec.from_json(recipe.seeds[1]))
    roles = scientist or open_scientist(
        recipe.scientist, recipe.settings, max_tokens=recipe.max_tokens, progress=progress
    )
    people = people_of(recipe, domain, sandbox)
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        record = Record(out)
    search = TheorySearch(domain, seeds, people, roles, recipe.settings, sandbox, record)
    # Before the recipe is written: the folder of another search must keep its own.
    record.agree("start", search.facts())
    with _writing(out):
        text = json.dumps(recipe.to_json(), indent=2, ensure_ascii=False) + "\n"
        (out / RECIPE).write_text(text, encoding="utf-8")
    with Interrupt() as stop:
        outcome = search.run(progress, lambda: stop.asked)
    with _writing(out):
        write_out(out, search, outcome)
    if outcome.state == "stopped":
        raise KeyboardInterrupt
    return search, outcome


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Raise DiskFull where the system refuses."""
    try:
        yield
    except OSError as error:
        raise DiskFull(f"the search cannot be recorded: {error.strerror}", where=str(out)) from error


def read_recipe(out: Path) -> Recipe:
    """The recipe of a folder. Raises BadInput where it is not the folder of a search."""
    hint = "name the folder that `refork theory run --out` wrote"
    try:
        found = json.loads((out / RECIPE).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("this is not the folder of a search", where=str(out), hint=hint) from error
    except ValueError as error:
        raise BadInput(f"this is not JSON: {error}", where=str(out / RECIPE), hint=hint) from error
    return from_json(Recipe, found, str(out / RECIPE))


def resume_theories(
    out: Path,
    sandbox: Sandbox,
    *,
    rounds: int | None = None,
    scientist: Scientist | None = None,
    progress: Progress = silent,
) -> tuple[TheorySearch, Outcome]:
    """Go on with a folder's search, perhaps for more rounds. Raises as :func:`run_theories`."""
    recipe = read_recipe(out)
    if rounds is not None:
        recipe = replace(recipe, settings=replace(recipe.settings, rounds=rounds))
    return run_theories(recipe, out, sandbox, scientist=scientist, progress=progress)


def read_theories(out: Path, sandbox: Sandbox) -> tuple[Recipe, TheorySearch, Outcome]:
    """A folder's search as far as it went; nothing is computed that is not recorded, and nobody is asked.

    Raises: BadInput, Mismatch.
    """
    recipe = read_recipe(out)
    if not (out / EVENTS).exists():
        raise BadInput("nothing is recorded here", where=str(out))
    record = Record(out)
    start = record.get("start") or {}
    # Stand-ins that have a name and nothing else: a search that is stopped asks nobody for anything new.
    people: Any = SimpleNamespace(name=str(start.get("participants")))
    roles: Any = SimpleNamespace(name=str(start.get("scientist")))
    domain = domain_named(recipe.domain)
    seeds = (TheorySpec.from_json(recipe.seeds[0]), TheorySpec.from_json(recipe.seeds[1]))
    search = TheorySearch(domain, seeds, people, roles, recipe.settings, sandbox, record)
    return recipe, search, search.run(stopped=lambda: True)


def write_out(out: Path, search: TheorySearch, outcome: Outcome) -> None:
    """Everything that is derived from the record."""
    for name in ("theories", "trials"):
        (out / name).mkdir(exist_ok=True)
    for label, spec in search.theories.items():
        theory = spec.theory(search.domain)
        if theory is not None:
            (out / "theories" / f"{label}.yaml").write_text(theory.to_yaml(), encoding="utf-8")
    for one in search.observed:
        file = f"{one.name.replace(', ', '-').replace(' ', '-')}.csv"
        write_csv_trials(out / "trials" / file, one.observation)
    _write_board(out / "leaderboard.csv", search, outcome)
    standings = outcome.pool.replay()
    if standings:
        (out / "leaderboard.svg").write_text(leaderboard_figure(search, standings).svg(), encoding="utf-8")
    with Tree.open(out / "tree.db") as tree:
        record_on_tree(search, tree)


def _write_board(file: Path, search: TheorySearch, outcome: Outcome) -> None:
    """One row a theory and round: relative and absolute scores side by side."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(("round", "label", "theory", "slot", "relative", "mse_pb", "lag_1_error"))
        done = 0
        for number, standing in enumerate(outcome.pool.replay(), 1):
            done += len(outcome.pool.rounds[number - 1].seen)
            for label in standing.labels:
                seen = search.predicted[label][:done]
                mse = sum(one.mse_pb for one in seen) / len(seen)
                orders = [one.order for one in seen if one.order is not None]
                slot = standing.slots.index(label) + 1 if label in standing.slots else ""
                title = search.theories[label].title(search.domain)
                lag = sum(orders) / len(orders) if orders else ""
                rows.writerow((number, label, title, slot, standing.scores[label], mse, lag))
