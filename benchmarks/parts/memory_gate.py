"""The gate by itself: closed forms, the simulator, the memory on its streams, rent or buy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refork.sandbox import Sandbox
from refork_methods.memory import AdmissionGuard, ExperienceMemory, RecurrenceGate, codify_due
from refork_methods.memory.gate import (
    expected_invocations,
    expected_never_invoked,
    expected_tools,
    gate_cost,
    offline_cost,
    rent_or_buy_theta,
    simulate_gate,
    zipf,
)
from refork_methods.memory.trajectory import RunStep, RunTrajectory

TASKS, FAMILIES = 90, 60
THETAS = (0, 1, 2, 3, 5)
SYLLABLES = ("ba", "de", "ki", "lo", "mu", "ra", "se", "ti")
CASES = 20_000


@dataclass(frozen=True)
class GateRow:
    """One theta: closed forms, simulated means, and the largest deviation in standard errors."""

    theta: int
    tools: float
    tools_seen: float
    never: float
    never_seen: float
    invocations: float
    invocations_seen: float
    deviation: float


def closed_forms(runs: int, seed: int) -> list[GateRow]:
    """Every theta: E[tools] and E[never invoked] beside the means of simulated streams."""
    shares = zipf(FAMILIES)
    found = []
    for theta in THETAS:
        seen = simulate_gate(TASKS, shares, theta, runs, seed + theta)
        expected = (
            expected_tools(TASKS, shares, theta),
            expected_never_invoked(TASKS, shares, theta),
            expected_invocations(TASKS, shares, theta),
        )
        counts = (seen.tools, seen.never_invoked, seen.invocations)
        off = max(_errors(row, value) for row, value in zip(counts[:2], expected[:2], strict=True))
        means = [float(row.mean()) for row in counts]
        found.append(GateRow(theta, expected[0], means[0], expected[1], means[1], expected[2], means[2], off))
    return found


def _errors(counts: NDArray[np.int64], expected: float) -> float:
    return float(abs(counts.mean() - expected) / (counts.std(ddof=1) / np.sqrt(len(counts))))


def words_of(families: int) -> list[str]:
    """A made-up word for each family."""
    n = len(SYLLABLES)
    return [SYLLABLES[f % n] + SYLLABLES[f // n % n] + SYLLABLES[(f * 3 + 1) % n] for f in range(families)]


def real_memory(theta: int, runs: int, seed: int) -> tuple[int, int, int]:
    """The memory itself on the simulator's draws: tools, never invoked, and streams that differ from it.

    Reflector, screener, retrieval, manager, gate, codifier and admission are the shipped ones by rule.
    """
    shares, names = zipf(FAMILIES), words_of(FAMILIES)
    simulated = simulate_gate(TASKS, shares, theta, runs, seed)
    drawn = np.random.default_rng(seed).choice(FAMILIES, size=(TASKS, runs), p=shares)
    catalogue = {
        f"desk.{name}": {
            "type": "object",
            "properties": {"person": {"type": "string"}, "amount": {"type": "integer"}},
            "required": ["person", "amount"],
        }
        for name in names
    }
    tools = never = differing = 0
    with Sandbox() as sandbox:
        guard = AdmissionGuard(catalogue, sandbox)
        for run in range(runs):
            built, idle = _stream([names[f] for f in drawn[:, run]], theta, guard)
            tools, never = tools + built, never + idle
            differing += (built, idle) != (int(simulated.tools[run]), int(simulated.never_invoked[run]))
    return tools, never, differing


def _stream(families: list[str], theta: int, guard: AdmissionGuard) -> tuple[int, int]:
    """One stream of tasks through a memory: tools built, and tools that no task called."""
    memory = ExperienceMemory(gate=RecurrenceGate(theta) if theta else RecurrenceGate.at_once())
    used: set[str] = set()
    for number, family in enumerate(families):
        person, amount = f"Ann {SYLLABLES[number % 8].title()}{SYLLABLES[number // 8 % 8]}", 100 + number
        query = f'Please {family} {amount} marks for "{person}"'
        chosen = memory.select(query, task=f"t{number}")
        called = [tool.name for tool in chosen.tools]
        used.update(called)
        memory.observe(f"t{number}", chosen, called=called, success=True)
        step = RunStep("s1", function=f"desk.{family}", arguments={"person": person, "amount": amount},
                       result={"done": number}, observation="done")  # fmt: skip
        memory.reflect(RunTrajectory(f"t{number}", query, (step,), True))
        codify_due(memory, guard)
    built = {tool.name for tool in memory.state.live_tools()}
    return len(built), len(built - used)


def rent_or_buy(seed: int) -> tuple[float, float]:
    """The worst ratio of rent-or-buy to the clairvoyant choice, one task's saving left out, and with it."""
    rng = np.random.default_rng(seed)
    worst = whole = 0.0
    for _ in range(CASES):
        code, saving = float(rng.uniform(0, 5)), float(rng.uniform(0.01, 5))
        build, arrivals = float(rng.uniform(0.01, 60)), int(rng.integers(1, 200))
        paid = gate_cost(arrivals, build, code + saving, code, rent_or_buy_theta(build, saving))
        best = offline_cost(arrivals, build, code + saving, code)
        worst, whole = max(worst, (paid - saving) / best), max(whole, paid / best)
    return worst, whole
