"""What the evaluation of simulators opens: models, trajectories, judges and baselines by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.policies.open import open_policy, spell
from refork.progress import Progress, silent, waits
from refork.tree.tree import Tree
from refork.worlds.environment import Environment, EnvTrajectory
from refork.worlds.open import open_world
from refork_methods.simulate.baselines import CommonAnswer, CopyLast, NearestTurn
from refork_methods.simulate.control.parse import parse_control
from refork_methods.simulate.data import read_source, refuse_overlap
from refork_methods.simulate.evaluate import Chosen, Evaluation, Predictor, evaluate
from refork_methods.simulate.fidelity import Comparison, compare_simulators
from refork_methods.simulate.on_tree import on_tree, write_scores
from refork_methods.simulate.run import open_judge
from refork_methods.simulate.world import GREEDY, LearnedSimulator, SimulatedWorld, WorldModel

BASELINES = ("copy", "common", "nearest")


def open_simulator(
    spec: str, *, think: bool = False, settings: Sampling | None = None, progress: Progress = silent
) -> tuple[WorldModel, Path | None]:
    """The world model of a folder, ``organism:NAME`` or any policy's name; and its folder, where it has one.

    The folder of a training run stands for the policy in it.

    Raises: BadInput for a name that stands for nothing.
    """
    folder = Path(spec.removeprefix("hf:"))
    if folder.is_dir():
        inner = folder / "policy"
        chosen = inner if inner.is_dir() else folder
        name = _model_in(chosen)
        folder_of: Path | None = folder
    else:
        name = spell(spec, progress)
        folder_of = None if not name.startswith("hf:") else Path(name.removeprefix("hf:"))
    model = open_policy(name, on_wait=waits(progress))
    return WorldModel(model, settings=settings or GREEDY, think=think), folder_of


def _model_in(folder: Path) -> str:
    """The policy of a folder; an adapter's is its model with it, as its weights are known elsewhere."""
    file = folder / "adapter_config.json"
    if not file.is_file():
        return f"hf:{folder}"
    base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise BadInput(
            "this adapter does not name its model", where=str(folder), hint="hf:MODEL+adapter=FOLDER"
        )
    return f"hf:{base}+adapter={folder}"


def open_environment(spec: str) -> Environment:
    """A world that can be simulated. Raises BadInput for one that says no brief and grades no texts."""
    world = open_world(spec)
    if not isinstance(world, Environment):
        raise BadInput(
            f"{spec!r} cannot be simulated: it has no brief and no grading of texts",
            hint="terminal, swe, search, tools, web, phone, desktop",
        )
    return world


def simulated_worlds(model: WorldModel, specs: Sequence[str]) -> dict[str, SimulatedWorld]:
    """Worlds by the name they are served under, ``[NAME=]SPEC``. Raises BadInput for one name twice."""
    found: dict[str, SimulatedWorld] = {}
    for item in specs:
        given, equals, rest = item.partition("=")
        # An equals sign may belong to the world's own settings; no plain name stands before it then.
        named = bool(equals) and given.replace("-", "").replace("_", "").isalnum()
        spec = rest if named else item
        name = given if named else spec.partition("?")[0].replace(":", "-")
        if name in found:
            raise BadInput(f"two worlds are called {name!r}", hint="name them: --world NAME=SPEC")
        found[name] = model.world(open_environment(spec))
    return found


def baseline(name: str, train: Path | None, test: Sequence[EnvTrajectory] = ()) -> Predictor:
    """A predictor that learns nothing.

    Raises: BadInput where it needs trajectories and has none, or some of ``test``.
    """
    if name == "copy":
        return CopyLast()
    if name not in BASELINES:
        raise BadInput(f"there is no baseline {name!r}", hint="copy, common or nearest")
    if train is None:
        raise BadInput(f"the baseline {name} looks its answers up", hint="--train FILE: its trajectories")
    held = list(read_source(train, []))
    refuse_overlap(held, test)
    return CommonAnswer(held) if name == "common" else NearestTurn(held)


def chosen_turns(text: str) -> Chosen:
    """``all``, ``one`` or a number, as the command line says it."""
    if text == "all":
        return "all"
    if text == "one":
        return "one"
    if not text.isdigit() or not int(text):
        raise BadInput(f"{text!r} is no choice of turns", where="--turns", hint="all, one or a number")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPlan:
    """What is evaluated, against what. ``out`` keeps predictions, so that the same command goes on."""

    model: str
    trajectories: Path
    judge: str | None = None
    against: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    train: Path | None = None
    turns: Chosen = "all"
    seed: int = 0
    batch: int = 32
    think: bool = False
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Evaluations, the model's first; the model's minus each other one; what could not be read or written.

    ``stopped``: Ctrl-C came before all were done.
    """

    first: Evaluation
    others: list[Evaluation] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    scores: int = 0

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended one of them; those behind it are missing."""
        return _stopped(self.first, self.others)


def run_eval(plan: EvalPlan, progress: Progress = silent) -> EvalResult:
    """Evaluate a model and what it is compared with; of a tree the figures become scores.

    Raises: BadInput, as :func:`evaluate` and the openers.
    """
    judge = None if plan.judge is None else open_judge(spell(plan.judge, progress), progress)
    with ExitStack() as stack:
        unread: list[str] = []
        tree, nodes = None, {}
        items: list[EnvTrajectory]
        if _is_tree(plan.trajectories):
            tree = stack.enter_context(Tree.open(plan.trajectories))
            held = on_tree(tree)
            items, nodes, unread = held.trajectories, held.nodes, held.unread
        else:
            items = list(read_source(plan.trajectories, unread))
        rivals = [baseline(name, plan.train, items) for name in plan.baselines]

        def run(predictor: Predictor, folder: Path | None, graded: bool) -> Evaluation:
            return evaluate(
                predictor, items, judge=judge if graded else None, turns=plan.turns, seed=plan.seed,
                batch=plan.batch, folder=plan.out, model_folder=folder, progress=progress,
            )  # fmt: skip

        model, folder = open_simulator(plan.model, think=plan.think, progress=progress)
        first = run(model, folder, True)
        scores = 0 if tree is None else write_scores(tree, first, nodes, plan.seed)
        others: list[Evaluation] = []
        for spec in plan.against:
            if not _stopped(first, others):
                others.append(run(*open_simulator(spec, think=plan.think, progress=progress), True))
        for rival in rivals:
            if not _stopped(first, others):
                others.append(run(rival, None, True))
    told = [
        compare_simulators(other.turns, first.turns, names=(other.fidelity.name, first.fidelity.name))
        for other in others
    ]
    return EvalResult(first, others, told, unread, scores)


def _stopped(first: Evaluation, others: Sequence[Evaluation]) -> bool:
    """Whether Ctrl-C ended one of them: then none is begun after it."""
    return any(one.stopped for one in (first, *others))


def _is_tree(path: Path) -> bool:
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    with path.open("rb") as file:
        return file.read(16).startswith(b"SQLite format 3")


def simulator_under(spec: str, control: str | None, live: Progress) -> LearnedSimulator:
    """The simulator that a command names, under its control."""
    steered = parse_control(control) if control else None
    return LearnedSimulator(open_simulator(spec, progress=live)[0], steered)
