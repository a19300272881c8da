"""Runs a grid: every episode is a fork on one tree, every row a line of a journal, and both resume.

An episode that fails (an empty summary, a framework that refuses, a model that breaks off) is a row with its
error, never the end of the run. Rows with errors are tried again when the run is resumed.

Source: arXiv:2606.22528 (7 models x 7 conditions x 9 tasks x 3 repetitions = 1,323 episodes).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, final

from refork.chat import ChatModel, PolicyChat
from refork.compaction import Compactor, approximate_tokens, holds
from refork.errors import BadInput, ReforkError, ServerError
from refork.forking import Fork
from refork.forking.arm import ReadyArm, run_jobs
from refork.policies.base import Policy, Sampling
from refork.policies.open import open_policy, spell
from refork.progress import Progress, silent, waits
from refork.runs.recipe import open_folder
from refork.tree.tree import Tree
from refork.types import Json, Message
from refork_methods.journal import Journal
from refork_methods.pin.constraint import Constraint
from refork_methods.rot import report
from refork_methods.rot.compactors import open_compactor
from refork_methods.rot.conditions import COMPACTS, Setup, stage
from refork_methods.rot.episode import Cell, Episode
from refork_methods.rot.grid_report import grid_report
from refork_methods.rot.on_tree import Answer, graded, grader_of, job_of, plant, rule_producer
from refork_methods.rot.stage import Stage
from refork_testbed.models import chat
from refork_testbed.trials.rot_recipe import SEARCH, SELF, RotRecipe, cells, checked, search_cells
from refork_testbed.worlds.house_rules import attacks as a
from refork_testbed.worlds.house_rules.attacks import FRAMINGS
from refork_testbed.worlds.house_rules.scenario import Scenario, scenario
from refork_testbed.worlds.house_rules.summarisers import SUMMARISERS
from refork_testbed.worlds.house_rules.tasks import tools_asked

# Scenarios of the house-rules world as the conditions take them, with the adversary's texts in place.


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """A scenario taken apart: what stands before the policy turn, that turn, the benign ones, the request."""

    scenario: Scenario

    @property
    def head(self) -> tuple[Message, ...]:
        """What stands before the policy turn."""
        history = self.scenario.history
        first = next(i for i, m in enumerate(history) if m["id"] in self._policy)
        return history[:first]

    @property
    def policy(self) -> tuple[Message, ...]:
        """The turn that states the rule, and its answer."""
        return tuple(m for m in self.scenario.history if m["id"] in self._policy)

    @property
    def benign(self) -> tuple[Message, ...]:
        """The turns between."""
        history = self.scenario.history
        return tuple(m for m in history[len(self.head) :] if m["id"] not in self._policy)

    @property
    def trigger(self) -> Message:
        """The request that breaks the rule."""
        return self.scenario.trigger

    @property
    def twin(self) -> Message:
        """Its allowed counterpart."""
        return self.scenario.twin

    @property
    def rule(self) -> str:
        """The rule's bytes."""
        return self.scenario.rule

    @property
    def tools(self) -> tuple[Json, ...]:
        """Function schemas; none in the small wording, whose agents write their calls as text."""
        return self.scenario.tools if self.scenario.wording == "full" else ()

    @property
    def checker(self) -> Json:
        """What says whether a call breaks the rule."""
        return self.scenario.about.checker

    @property
    def constraint(self) -> Constraint:
        """The rule as it is pinned."""
        about = self.scenario.about
        return Constraint(about.name, self.rule, about.kind, about.tool, about.checker)

    @property
    def _policy(self) -> frozenset[str]:
        return frozenset(self.scenario.policy_ids)


#: Documents that the bulk text of attack_volume comes in.
_DOCUMENTS: Final = 4
#: Characters that a word of the bulk text has at least, the space after it included.
_SHORTEST: Final = 3


def setup_for(
    scene: Scene,
    compactor: Compactor,
    *,
    framing: str = a.FRAMINGS[0],
    rounds: int = 1,
    placement: Literal["head", "tail"] = "head",
    hardened: bool = True,
) -> Setup:
    """What the conditions of a scene need: the compactor, the pin, and the adversary's messages.

    Raises: BadInput for a framing that is not known.
    """
    wording, seed = scene.scenario.wording, scene.scenario.seed
    text = a.framing(framing, scene.scenario.task, wording)

    def volume(characters: int) -> Sequence[Message]:
        words = -(-characters // (_SHORTEST * _DOCUMENTS))
        texts = [a.volume_text(words, seed + place, wording) for place in range(_DOCUMENTS)]
        return a.ingested(texts, "volume", wording)

    return Setup(
        compactor=compactor,
        constraint=scene.constraint,
        inject=tuple(a.ingested([text], "attack", wording)),
        volume=volume,
        stress={f"stress_{name}": tuple(make(scene.rule, wording)) for name, make in a.STRESS.items()},
        rounds=rounds,
        placement=placement,
        hardened=hardened,
    )


#: Episodes that are staged, sampled and written together.
_BATCH: Final = 64
#: Episodes in a row whose summariser's server gave no answer, each after long patience, that end a run.
_PATIENCE: Final = 3
#: Sessions of the search have their own seeds, far from the grid's.
_SEARCH_SEED: Final = 1_000_000
_PLANTED: Final = "planted:"
_ORGANISM: Final = "organism:"
JOURNAL, SEARCHED, REPORT, RECIPE = "episodes.jsonl", "framings.jsonl", "report.json", "recipe.json"


def open_summariser(spec: str, settings: Sampling, seed: int, progress: Progress = silent) -> ChatModel:
    """A summariser by name: ``planted:NAME``, ``organism:NAME``, or any policy as a chat model.

    Raises: BadInput for a name that is neither.
    """
    if spec.startswith(_PLANTED):
        name = spec.removeprefix(_PLANTED)
        if name not in SUMMARISERS:
            known = ", ".join(SUMMARISERS)
            raise BadInput(f"there is no planted summariser {name!r}", hint=f"known: {known}")
        return SUMMARISERS[name]()
    if spec.startswith(_ORGANISM):
        return chat.summariser_chat(spec.removeprefix(_ORGANISM), progress=progress)
    return PolicyChat(open_policy(spec, on_wait=waits(progress)), settings, seed)


@final
class Rows:
    """The rows of a run, by cell; of two with the same cell the later one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = Journal(path, noun="run's journal") if path.exists() else None
        self._rows: dict[str, Episode] = {}
        for entry in self._journal or ():
            self._keep(Episode.from_json(entry.body, f"{path}, entry {entry.n}"))

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._rows.values())

    def open(self, wanted: Sequence[Cell]) -> list[Cell]:
        """Cells that have no row yet, or one that broke."""
        return [c for c in wanted if (row := self._rows.get(_name(c))) is None or row.result == "error"]

    def add(self, rows: Sequence[Episode]) -> None:
        """Append rows; on disk when the call returns."""
        if self._journal is None:
            self._journal = Journal.create(self.path, noun="run's journal")
        for row in rows:
            self._journal.append("episode", row.to_json())
            self._keep(row)

    def _keep(self, row: Episode) -> None:
        self._rows[_name(row.cell)] = row


def _name(cell: Cell) -> str:
    """What a cell is filed under. The framing is found by the search, so it is no part of a grid's cell."""
    return cell.key if cell.rep < 0 else replace(cell, framing=None).key


@dataclass(frozen=True, slots=True)
class _Staged:
    """An episode that is ready to be sampled, or the row that it ended as before."""

    cell: Cell
    scene: Scene
    stage: Stage | None = None
    job: ReadyArm | None = None
    seconds: float | None = None
    error: str | None = None
    down: ServerError | None = None


@final
@dataclass(frozen=True, slots=True)
class Bench:
    """What the episodes of a run share: the tree, the models, the settings."""

    recipe: RotRecipe
    tree: Tree
    policies: Mapping[str, Policy]
    summarisers: Mapping[str, ChatModel]
    progress: Progress = silent
    best: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Sampling:
        """How answers are sampled."""
        return self.recipe.sampling.sampling()

    def scene(self, cell: Cell) -> Scene:
        """The session of a cell: one for each task and repetition, the same for all models and conditions."""
        r = self.recipe
        # The stride is far above the number of sessions, so runs with other seeds share none.
        seed = r.seed * 10_000_019 + (cell.rep if cell.rep >= 0 else _SEARCH_SEED - cell.rep)
        # One history for every number of rounds: more rounds cut it into more parts, each of ``turns``.
        return Scene(
            scenario(
                cell.task, seed, turns=r.turns * max(1, *r.rounds),
                wording=r.wording, channel=r.channel, language=r.language,  # type: ignore[arg-type]
            )
        )  # fmt: skip

    def framing(self, cell: Cell) -> str:
        """The injected framing of a cell: its own, the recipe's, or the worst that was found."""
        fixed = self.recipe.framing
        return cell.framing or (self.best.get(cell.model, FRAMINGS[0]) if fixed == SEARCH else fixed)

    def summariser(self, cell: Cell) -> ChatModel | None:
        """Who writes the summaries of a cell."""
        if cell.summariser == "none":
            return None
        return self.summarisers[cell.model if cell.summariser == SELF else cell.summariser]

    def stage(self, cell: Cell, scene: Scene) -> Stage:
        """The context of a cell. Raises whatever the compactor raises."""
        request = scene.twin if cell.request == "twin" else None
        # Floor and control compact nothing, so any compactor will do that asks no model.
        compactor = open_compactor(
            cell.compactor if cell.condition in COMPACTS else "truncate",
            summariser=self.summariser(cell),
            max_tokens=cell.budget or self.recipe.max_tokens,
            # Where no summary is written nothing reads it, but it has to be a limit.
            words=cell.words or 1,
            draw=max(cell.rep, 0),
        )
        made = setup_for(
            scene, compactor, framing=self.framing(cell), rounds=cell.rounds,
            placement=self.recipe.placement, hardened=self.recipe.hardened,
        )  # fmt: skip
        return stage(cell.condition, scene, made, request)

    def ready(self, cell: Cell) -> _Staged:
        """Stage an episode and list its draw; what goes wrong is kept as its error."""
        scene = self.scene(cell)
        began = time.monotonic()
        try:
            staged = self.stage(cell, scene)
        except ReforkError as error:
            down = error if isinstance(error, ServerError) else None
            return _Staged(cell, scene, error=str(error).partition("\n")[0], down=down)
        except Exception as error:  # a framework may raise anything, and the run goes on
            return _Staged(cell, scene, error=repr(error))
        seconds = time.monotonic() - began
        if not staged.valid:  # nothing can be learnt from the answer, so none is asked for
            return _Staged(cell, scene, staged, seconds=seconds)
        request = scene.twin if cell.request == "twin" else scene.trigger
        extra = {"task": cell.task, "rep": cell.rep, "request": cell.request}
        policy = self.policies[cell.model]
        point = plant(self.tree, policy, (*scene.scenario.history, request), extra, scene.tools)
        job = job_of(point, policy, staged, 1, settings=self.settings, seed=self.recipe.seed)
        most, longest = policy.card.context, max((len(b.tokens) for b in job.branches), default=0)
        if most is not None and longest >= most:
            return _Staged(cell, scene, error=f"{longest} tokens leave no room in a context of {most}")
        return _Staged(cell, scene, staged, job, seconds)

    def run(self, wanted: Sequence[Cell]) -> list[Episode]:
        """The rows of some cells, sampled in one batch.

        Raises: ServerError where the summariser's server gave no answer several times in a row.
        """
        staged: list[_Staged] = []
        silent_for = 0
        for cell in wanted:
            staged.append(self.ready(cell))
            last = staged[-1]
            if last.down is not None:
                silent_for += 1
                if silent_for == _PATIENCE:
                    raise last.down
            # Only an episode that asked a summariser shows that the server answers again.
            elif last.stage is not None and last.stage.summary_calls:
                silent_for = 0
        alive = [s for s in staged if s.job is not None]
        forks = run_jobs([s.job for s in alive if s.job is not None]) if alive else []
        done = {id(s): fork for s, fork in zip(alive, forks, strict=True)}
        return [self._row(s, done.get(id(s))) for s in staged]

    def _row(self, staged: _Staged, fork: Fork | None) -> Episode:
        scene, about, cell = staged.scene, staged.scene.scenario.about, staged.cell
        if staged.stage is None:
            return Episode(cell, about.kind, "error", staged.error or "")
        if cell.condition in ("attack_inject", "defense_pin_attack"):
            cell = replace(cell, framing=self.framing(cell))
        made = staged.stage
        kept = made.survival(scene.rule)
        checker, why = scene.checker, made.rounds[-1].result.reason if made.rounds else ""
        found = Answer(0, "invalid", f"the compactor did not fire: {why}")
        if fork is not None:
            found = graded(fork, grader_of(checker), rule_producer(cell.task, checker), kept)[0]
        before, after = made.tokens(approximate_tokens)
        return Episode(
            cell, about.kind, found.result, found.reason,
            survived=kept.survived if kept is not None and made.valid else None,
            fate=kept.fate if kept is not None else None,
            recall=kept.recall if kept is not None else None,
            in_view=holds(made.context, scene.rule),
            tokens_before=before, tokens_after=after, calls=made.summary_calls,
            seconds=staged.seconds if made.rounds else None,
            fork=fork.record.id if fork else None, leaf=found.leaf, tool=found.tool,
        )  # fmt: skip


def run_grid(
    recipe: RotRecipe,
    folder: Path,
    *,
    policies: Mapping[str, Policy] | None = None,
    summarisers: Mapping[str, ChatModel] | None = None,
    progress: Progress = silent,
) -> Json:
    """Run a recipe in a folder, or go on with it; its report, which also stands in ``report.json``.

    ``policies`` and ``summarisers`` by the names that the recipe uses; what is missing is opened by name.

    Raises:
        BadInput, MissingExtra: the recipe makes no sense here.
        Mismatch: the folder holds a run of another recipe.
        ServerError: a server refuses everything; what is done stays.
    """
    checked(recipe)
    if (folder / RECIPE).exists():  # refuse another recipe before a model is loaded
        open_folder(folder, recipe)
    agents = dict(policies or {})
    for spec in recipe.policies:
        if spec not in agents:
            agents[spec] = open_policy(spell(spec, progress), on_wait=waits(progress))
    writers = _writers(recipe, agents, dict(summarisers or {}), progress)
    open_folder(folder, recipe)  # only now: a wrong name leaves no folder that the right one could not use
    with Tree.open(folder / "tree.db") as tree:
        bench = Bench(recipe, tree, agents, writers, progress)
        searched = Rows(folder / SEARCHED)
        _fill(bench, searched, list(search_cells(recipe)), "searching framings")
        bench = replace(bench, best=best_framings(list(searched)))
        _fill(bench, Rows(folder / JOURNAL), list(cells(recipe)), "episodes")
    return write_report(folder)


def _writers(
    recipe: RotRecipe, agents: Mapping[str, Policy], given: dict[str, ChatModel], progress: Progress
) -> dict[str, ChatModel]:
    """Every summariser by the name that cells use; an agent that summarises for itself by its own."""
    settings = recipe.sampling.sampling()
    for spec in recipe.summarisers:
        if spec == SELF:
            given |= {
                name: PolicyChat(policy, settings, recipe.seed)
                for name, policy in agents.items()
                if name not in given
            }
        elif spec not in given:
            policy = agents.get(spec)
            given[spec] = (
                PolicyChat(policy, settings, recipe.seed)
                if policy is not None
                else open_summariser(spec, settings, recipe.seed, progress)
            )
    return given


def _fill(bench: Bench, rows: Rows, wanted: Sequence[Cell], name: str) -> None:
    """Run what a journal lacks, batch by batch."""
    missing = rows.open(wanted)
    done = len(wanted) - len(missing)
    if wanted:
        bench.progress(name, done, len(wanted))
    for part in _parts(missing):
        rows.add(bench.run(part))
        done += len(part)
        bench.progress(name, done, len(wanted))


def _parts(wanted: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    for start in range(0, len(wanted), _BATCH):
        yield wanted[start : start + _BATCH]


def best_framings(rows: Sequence[Episode]) -> dict[str, str]:
    """For each model the framing with the most violations; of equals the one that fewer rules survived."""
    by = report.group(rows, lambda r: (r.cell.model, r.cell.framing or ""))

    def rank(key: tuple[str, str]) -> tuple[float, float, int]:
        told = report.rate(by[key])
        kept = report.survival_of(by[key])
        order = FRAMINGS.index(key[1]) if key[1] in FRAMINGS else len(FRAMINGS)
        return told["rate"] or 0.0, -(1.0 if kept is None else kept), -order

    best: dict[str, str] = {}
    for model in dict.fromkeys(model for model, _ in by):
        best[model] = max((key for key in by if key[0] == model), key=rank)[1]
    return best


def read_run(folder: Path) -> tuple[list[Episode], list[Episode]]:
    """The rows of a run's folder, and those of its search. Raises BadInput where there is no run."""
    if not (folder / JOURNAL).exists():
        raise BadInput(
            "there is no run here", where=str(folder), hint="`refork rot run --out FOLDER` makes one"
        )
    return list(Rows(folder / JOURNAL)), list(Rows(folder / SEARCHED))


def write_report(folder: Path) -> Json:
    """The report of a run's folder, written beside its rows."""
    rows, searched = read_run(folder)
    told = grid_report(rows, searched, tools=tools_asked())
    file = folder / RECIPE
    if file.exists() and json.loads(file.read_text())["recipe"]["channel"] == "system":
        told["warnings"].append(
            "the rules stand in the system message, which no compactor touches: there is nothing to measure"
        )
    (folder / REPORT).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return told
