"""The investigator on repair tasks, and what its cases are worth to a repair agent that runs real tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

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
from refork_testbed.trials.edit_search import OWN, Attempt, EditSearch, Own
from refork_testbed.worlds.repair.runner import TestRunner
from refork_testbed.worlds.repair.tasks import RepairTask


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


def investigate_task(task: RepairTask, result: Spectrum | None = None) -> Investigated:
    """Investigate the broken project without its tests, from the issue and, if given, a spectrum."""
    index = RepoIndex.build(Snapshot.from_files(task.files), workers=1)
    return Investigated(task, index, investigate(index, task.issue, spectrum=result))


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
