"""The investigator on repair tasks, and what its cases are worth to a repair agent that runs real tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias, final

import numpy as np

from refork.errors import BadInput
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.gold import gold_spans
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.inject import (
    GOLD,
    AgentEffect,
    GateRun,
    InjectionGate,
    finding_right,
    measure_agent,
)
from refork_methods.localize.investigate import investigate
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.spectrum import Spectrum, spectrum
from refork_methods.localize.transfer import Findings, RepairRun
from refork_testbed.worlds.repair.mutation import Mutation, mutations
from refork_testbed.worlds.repair.runner import TestRunner, Variant
from refork_testbed.worlds.repair.tasks import RepairTask

# A repair agent that searches: single edits in an order, public tests after each, hidden ones at the end.
#
# Its edits and tests are real, and so is the case file that it may be handed; only its skill is planted, as
# the order in which it looks at functions by itself.


#: How an agent orders functions by itself: by chance, those its failing test ran first, or by Ochiai.
Own: TypeAlias = Literal["chance", "coverage", "suspicion"]
OWN: tuple[Own, ...] = ("chance", "coverage", "suspicion")
#: Edits that are tried in one process; the first that passes counts, so more than needed may run.
_BATCH = 8


@final
@dataclass(frozen=True, slots=True)
class Edit:
    """One single edit of one file."""

    path: str
    mutation: Mutation


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """How a search ended: resolved by the hidden suite, and how often the public tests were run.

    ``submitted``: the edit that passed the public tests; None where the budget ran out.
    """

    resolved: bool
    runs: int
    submitted: Edit | None


@final
class EditSearch:
    """One task's edits and their tests; a verdict is kept, so that arms of one task share the work.

    Raises: BadInput for a budget below 1.
    """

    def __init__(self, task: RepairTask, runner: TestRunner, budget: int = 40) -> None:
        if budget < 1:
            raise BadInput(f"a budget of {budget} test runs tries nothing")
        self.task, self.runner, self.budget = task, runner, budget
        self._public: dict[Edit, bool] = {}
        self._hidden: dict[Edit, bool] = {}
        self._ran: Mapping[str, frozenset[tuple[str, int]]] | None = None
        self._edits: list[Edit] | None = None

    def edits(self) -> list[Edit]:
        """Every single edit of every file of the broken project, by path and place."""
        if self._edits is None:
            files = self.task.files
            self._edits = [Edit(path, one) for path in sorted(files) for one in _mutations(files[path])]
        return self._edits

    def order(self, own: Own, seed: int, finding: CaseFile | None = None) -> list[Edit]:
        """The edits as an agent tries them: those in the finding's lines, place by place, then its own order.

        Within a function edits come in random order. Raises: BadInput for an unknown own order.
        """
        if own not in OWN:
            raise BadInput(f"unknown own order {own!r}", hint=f"one of {', '.join(OWN)}")
        rng = np.random.default_rng([seed, OWN.index(own)])
        edits = self.edits()
        # Drawn with or without a finding, so that all arms of a seed share the agent's own order.
        jitter = rng.uniform(size=len(edits))
        places = sorted({(one.path, one.mutation.function) for one in edits})
        chance = dict(zip(places, rng.permutation(len(places)).tolist(), strict=True))
        favour = self._favour(own)
        keys = [
            (
                -favour.get((one.path, one.mutation.function), 0.0),
                chance[one.path, one.mutation.function],
                jitter[n],
            )
            for n, one in enumerate(edits)
        ]
        mine = sorted(range(len(edits)), key=lambda n: keys[n])
        if finding is None:
            return [edits[n] for n in mine]
        told = {n: place for n in mine if (place := _rank_of(edits[n], finding)) is not None}
        first = sorted(told, key=lambda n: (told[n], jitter[n]))
        return [edits[n] for n in [*first, *(n for n in mine if n not in told)]]

    def _favour(self, own: Own) -> dict[tuple[str, str], float]:
        """What speaks for a function in the agent's own eyes."""
        if own == "chance":
            return {}
        ran, failed = self._coverage()
        lines = spectrum(ran, failed).ochiai()
        found: dict[tuple[str, str], float] = {}
        for one in self.edits():
            worth = lines.get((one.path, one.mutation.line), 0.0)
            key = (one.path, one.mutation.function)
            found[key] = max(found.get(key, 0.0), worth if own == "suspicion" else float(worth > 0))
        return found

    def _coverage(self) -> tuple[Mapping[str, frozenset[tuple[str, int]]], list[str]]:
        """Lines that each public test runs in the broken project, and the public tests that fail."""
        if self._ran is None:
            report = self.runner.run(self.task.files, self.task.tests, self.task.public, spectrum=True)
            self._ran = report.spectrum or {}
        return self._ran, [self.task.public[0]]

    def attempt(self, own: Own, seed: int, finding: CaseFile | None = None) -> Attempt:
        """Try edits in order until the public tests pass or the budget is spent; the hidden suite decides."""
        order = self.order(own, seed, finding)[: self.budget]
        for start in range(0, len(order), _BATCH):
            self._judge(order[start : start + _BATCH])
            for number, one in enumerate(order[start : start + _BATCH], start + 1):
                if self._public[one]:
                    return Attempt(self._resolves(one), number, one)
        return Attempt(False, min(self.budget, len(order)), None)

    def _judge(self, some: Sequence[Edit]) -> None:
        """Run the public tests of edits that were not tried before."""
        new = [one for one in some if one not in self._public]
        if not new:
            return
        variants = [Variant({one.path: self._text(one)}, self.task.public) for one in new]
        reports = self.runner.run_variants(self.task.files, self.task.tests, variants)
        self._public.update((one, report.ok) for one, report in zip(new, reports, strict=True))

    def _resolves(self, one: Edit) -> bool:
        if one not in self._hidden:
            files = {**self.task.files, one.path: self._text(one)}
            self._hidden[one] = self.runner.run(files, self.task.tests, self.task.hidden).ok
        return self._hidden[one]

    def _text(self, one: Edit) -> str:
        return one.mutation.apply(self.task.files[one.path])


def _rank_of(one: Edit, finding: CaseFile) -> int | None:
    """The first place of the finding that holds an edit's line."""
    for number, place in enumerate(finding.locations):
        if place.path == one.path and place.start <= one.mutation.line <= place.end:
            return number
    return None


@lru_cache(maxsize=2048)
def _mutations(source: str) -> tuple[Mutation, ...]:
    """A project's other files are the same in all of its tasks."""
    return tuple(mutations(source))


@final
@dataclass(frozen=True, slots=True)
class Investigated:
    """A task with its index and the investigator's case file."""

    task: RepairTask
    index: RepoIndex
    case: CaseFile

    @property
    def run(self) -> GateRun | None:
        """What a gate is fitted on; None for an empty case."""
        return GateRun.of(self.task.id, self.case, self.task.gold) if self.case.locations else None


def investigate_task(task: RepairTask) -> Investigated:
    """Investigate the broken project without its tests, from the issue."""
    index = RepoIndex.build(Snapshot.from_files(task.files))
    return Investigated(task, index, investigate(index, task.issue))


def task_spectrum(task: RepairTask, runner: TestRunner) -> Spectrum:
    """Which lines each test of the broken project runs: all tests, as the upper reference has them."""
    report = runner.run(task.files, task.tests, spectrum=True)
    return spectrum(report.spectrum or {}, report.failed)


def ochiai_files(result: Spectrum, files: Sequence[str]) -> list[str]:
    """Files by their most suspicious line, then by how many lines are that suspicious, then by name."""
    lines = result.ochiai()
    best: dict[str, tuple[float, int]] = {}
    for (path, _), worth in lines.items():
        high, count = best.get(path, (0.0, 0))
        best[path] = (worth, 1) if worth > high else (high, count + (worth == high))
    return sorted(files, key=lambda path: (*(-one for one in best.get(path, (0.0, 0))), path))


def first_place(case: CaseFile) -> CaseFile:
    """The case cut to its first place, which its score speaks of."""
    return replace(case, locations=case.locations[:1])


def right_case(one: Investigated) -> CaseFile:
    """A control: the function that the fix changes, in the shape of an investigator's place.

    It is marked as made with the fix at hand.
    """
    chunk = gold_spans(one.task.gold).spans[0]
    symbol = one.index.at(chunk.path, chunk.start)
    if symbol is None:
        raise BadInput("the fix is at no line of the snapshot", where=one.task.id)
    place = Location(
        symbol.path,
        symbol.start,
        symbol.end,
        "the fix changes it",
        "known from the fix",
        "known from the fix",
        symbol=symbol.qualified or None,
    )
    return CaseFile((place,), meta={"producer": {"name": "oracle"}, GOLD: True})


def wrong_case(one: Investigated) -> CaseFile | None:
    """A control: the investigator's best place among those that the fix shows to be wrong, if any."""
    for place in one.case.locations:
        alone = replace(one.case, locations=(place,), meta={"producer": {"name": "oracle"}, GOLD: True})
        if not finding_right(alone, one.task.gold):
            return alone
    return None


@final
@dataclass(frozen=True, slots=True)
class ForkedTask:
    """One task, repaired by every agent with no, its own, a right, a wrong and another task's finding.

    ``attempts``: (agent, arm) -> attempt; arms none, found, right, wrong, shuffled.
    """

    task: str
    case: CaseFile
    attempts: Mapping[tuple[Own, str], Attempt]


def fork_task(
    one: Investigated,
    runner: TestRunner,
    *,
    shuffled: CaseFile | None = None,
    own: Sequence[Own] = OWN,
    seed: int = 0,
    budget: int = 40,
) -> ForkedTask:
    """Repair one task with every finding; all arms share the agent's own order and its random choices."""
    search = EditSearch(one.task, runner, budget)
    arms: dict[str, CaseFile | None] = {
        "none": None,
        "found": first_place(one.case),
        "right": right_case(one),
    }
    wrong = wrong_case(one)
    if wrong is not None:
        arms["wrong"] = wrong
    if shuffled is not None:
        arms["shuffled"] = first_place(shuffled)
    attempts = {
        (agent, arm): search.attempt(agent, seed, finding) for agent in own for arm, finding in arms.items()
    }
    return ForkedTask(one.task.id, one.case, attempts)


def agent_effects(forks: Sequence[ForkedTask]) -> list[AgentEffect]:
    """G and L of every agent, in resolved tasks, from those forked with a right and a wrong finding."""
    whole = [one for one in forks if any(arm == "wrong" for _, arm in one.attempts)]
    agents = list(dict.fromkeys(agent for one in forks for agent, _ in one.attempts))
    found = []
    for agent in agents:
        none, right, wrong = (
            np.array([float(one.attempts[agent, arm].resolved) for one in whole])
            for arm in ("none", "right", "wrong")
        )
        found.append(measure_agent(agent, none, right, wrong, tasks=[one.task for one in whole]))
    return found


def repair_runs(forks: Sequence[ForkedTask], arm: str, gate: InjectionGate | None = None) -> list[RepairRun]:
    """The runs of an arm, each agent a setting; with a gate, ``result`` only where it says to inject.

    Arms: none, found (all findings, or gated), right (the oracle), shuffled.
    """
    named: dict[str, Findings] = {"none": "none", "right": "oracle", "shuffled": "shuffled"}
    findings = named.get(arm, "all" if gate is None else "gated")
    runs = []
    for one in forks:
        for agent in dict.fromkeys(agent for agent, _ in one.attempts):
            hold = gate is not None and not gate.decide(one.case, agent, task=one.task).act
            took = one.attempts[agent, "none" if hold else arm]
            runs.append(RepairRun(one.task, float(took.resolved), agent, findings))
    return runs


def mean_test_runs(forks: Sequence[ForkedTask], agent: Own, arm: str) -> float:
    """Mean of how often an agent ran the public tests in an arm, over the tasks that have it."""
    return float(np.mean([one.attempts[agent, arm].runs for one in forks if (agent, arm) in one.attempts]))
