"""The statistical part of ``benchmarks/constraint_rot.py``: two trained agents, two trained summarisers.

Sessions are of the held-out split in the small wording, which parts pairs of a request and its allowed twin:
no organism was trained on any of these sessions or pairs. One of the two alone may stand in the training data
with another counterpart. Every cell has ``n`` sessions shared out among the tasks of its kind. Survival is
exact: the rule stands in the context byte for byte. An answer that cannot be read counts in no rate and is
counted apart. :func:`measure` gives what has targets; :func:`stress` what an adversary's texts do, which has
none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from refork import stats
from refork.chat import ChatModel
from refork.compaction import Compactor, holds
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import Json, token_array
from refork_methods.pin.checkers import grade
from refork_methods.pin.strategies import HeadTail, Summarise
from refork_methods.rot import report
from refork_methods.rot.conditions import STRESS, stage
from refork_methods.rot.episode import Cell, Episode
from refork_methods.rot.stage import Stage, bare
from refork_testbed.models import build
from refork_testbed.models.chat import summariser_chat
from refork_testbed.models.extractive import ExtractiveChat
from refork_testbed.trials.rot_grid import Scene, setup_for
from refork_testbed.worlds.house_rules.attacks import FRAMINGS
from refork_testbed.worlds.house_rules.scenario import Scenario, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS, tools_asked

AGENTS = ("rule-agent", "rule-agent-wary")
SUMMARISERS = ("summariser", "summariser-opening")
BUDGETS = (15, 30, 50, 80, 150, 300)
#: Benign turns of a session; words of the summary in the headline cells and in the table of both; tokens at
#: which compaction fires, which every session has.
TURNS, WORDS, TABLE_WORDS, FIRES = 20, 50, 80, 100
SETTINGS = Sampling(temperature=0.7, max_tokens=48)
#: Sessions sampled together.
BATCH = 250
KINDS = ("soft", "hard")


@dataclass(frozen=True)
class Bench:
    """The organisms, and the sessions of each kind; ``hardened``: a pin says who pinned it."""

    agents: dict[str, LocalPolicy]
    writers: dict[str, ExtractiveChat]
    scenes: dict[str, list[Scene]]
    seed: int
    progress: Progress
    hardened: bool = True

    def cell(self, condition: str, kind: str, agent: str = AGENTS[0], **ways: Any) -> list[Episode]:
        """The episodes of one cell; ``ways`` are fields of :class:`Cell` (words, request and so on)."""
        scenes = self.scenes[kind]
        name = " ".join([condition, kind, agent, *map(str, ways.values())])
        rows: list[Episode] = []
        for start in range(0, len(scenes), BATCH):
            self.progress(name, start, len(scenes))
            part = scenes[start : start + BATCH]
            cells = [Cell(agent, condition, s.scenario.task, start + i, **ways) for i, s in enumerate(part)]
            rows += self._episodes(cells, part)
        self.progress(name, len(scenes), len(scenes))
        return rows

    def _episodes(self, cells: Sequence[Cell], scenes: Sequence[Scene]) -> list[Episode]:
        policy = self.agents[cells[0].model]
        self._read_ahead(cells[0], scenes)
        staged = [self._stage(cell, scene) for cell, scene in zip(cells, scenes, strict=True)]
        requests = [
            Request(
                policy.render([], token_array([]), bare(made.context)).tokens,
                NoiseKey(self.seed, stream_of("organisms", cell.task, cell.rep), 0),
            )
            for cell, made in zip(cells, staged, strict=True)
        ]
        answers = sample_all(policy, requests, SETTINGS)
        rows = []
        for cell, scene, made, answer in zip(cells, scenes, staged, answers, strict=True):
            found = grade({"role": "assistant", "content": answer.text}, scene.checker)
            seen = holds(made.context, scene.rule)
            rows.append(
                Episode(
                    cell, scene.scenario.about.kind, found.outcome if made.valid else "invalid", found.reason,
                    survived=seen if made.rounds and made.valid else None, in_view=seen,
                    calls=made.summary_calls,
                )
            )  # fmt: skip
        return rows

    def _read_ahead(self, cell: Cell, scenes: Sequence[Scene]) -> None:
        """Let the summariser read all sessions in one batch: its forecasts are kept."""
        if cell.summariser != "none":
            self.writers[cell.summariser].replies([s.scenario.history[:-2] for s in scenes])

    def _stage(self, cell: Cell, scene: Scene) -> Stage:
        model = self.writers.get(cell.summariser)
        made = setup_for(
            scene, compactor(cell, model), framing=cell.framing or FRAMINGS[0], hardened=self.hardened
        )
        return stage(cell.condition, scene, made, scene.twin if cell.request == "twin" else None)


def compactor(cell: Cell, model: ChatModel | None) -> Compactor:
    """What compacts the sessions of a cell; the draw of its summaries differs from session to session."""
    if model is None:
        return HeadTail(FIRES)
    return Summarise(model, FIRES, words=cell.words or WORDS, draw=cell.rep)


def sessions(kind: str, n: int, seed: int) -> list[Scene]:
    """``n`` held-out sessions of the tasks of a kind, in turn."""
    names = [name for name, task in TASKS.items() if task.kind == kind]
    each = -(-n // len(names))
    rows: list[list[Scenario]] = [
        scenarios(name, "held-out", each, seed, turns=TURNS, wording="small") for name in names
    ]
    return [Scene(row[place]) for place in range(each) for row in rows][:n]


def open_bench(n: int, seed: int, progress: Progress = silent) -> Bench:
    """Organisms, built where they are not, and sessions."""
    agents = {name: LocalPolicy.load(str(build(name, progress=progress)), name=name) for name in AGENTS}
    writers = {name: summariser_chat(name, seed=seed, progress=progress) for name in SUMMARISERS}
    return Bench(agents, writers, {kind: sessions(kind, n, seed) for kind in KINDS}, seed, progress)


def measure(n: int = 500, seed: int = 0, progress: Progress = silent) -> Json:
    """All figures of the organisms with ``n`` sessions a cell; the targets are for 500 or more."""
    return measured(open_bench(n, seed, progress))


def measured(bench: Bench) -> Json:
    """The figures; ``cells`` holds every rate with its interval, by condition and kind."""
    first = {"summariser": SUMMARISERS[0]}
    ways: dict[str, tuple[str, Json]] = {
        "floor": ("floor", {}),
        "control": ("control", {}),
        "compaction": ("compaction", first | {"compactor": "summarise", "words": WORDS}),
        "pinned": ("defense_pin", first | {"compactor": "summarise", "words": WORDS}),
        "head_tail": ("compaction", {"compactor": "head-tail"}),
    }
    cells = {
        f"{name} {kind}": bench.cell(condition, kind, **fields)
        for (name, (condition, fields)), kind in product(ways.items(), KINDS)
    }
    cells["control twin"] = bench.cell("control", "soft", request="twin")
    cells["pinned twin"] = bench.cell("defense_pin", "soft", request="twin", **ways["pinned"][1])
    summarised = {"compactor": "summarise"}
    curve = [
        row
        for words in BUDGETS
        for row in bench.cell("compaction", "soft", words=words, **first, **summarised)
    ]
    grid = [
        row
        for writer, agent in product(SUMMARISERS, AGENTS)
        for row in bench.cell("compaction", "soft", agent, summariser=writer, words=TABLE_WORDS, **summarised)
    ]
    return figures(cells, curve, grid)


def figures(cells: dict[str, list[Episode]], curve: list[Episode], grid: list[Episode]) -> Json:
    """The goal figures from the episodes, as shares; of soft and hard rules where neither is said."""
    control = cells["control soft"] + cells["control hard"]
    compacted = cells["compaction soft"] + cells["compaction hard"] + curve + grid
    soft = report.difference(cells["control soft"], cells["compaction soft"])
    hard = report.difference(cells["control hard"], cells["compaction hard"])
    budgets, table = report.budgets(curve), report.summariser_by_agent(grid)
    assert soft is not None
    assert hard is not None
    assert budgets is not None
    assert table is not None
    pinned = cells["pinned soft"] + cells["pinned hard"]
    ends = cells["head_tail soft"] + cells["head_tail hard"]
    survived = [row for row in compacted if row.survived]
    every = [row for part in (*cells.values(), curve, grid) for row in part]
    return {
        "control": report.rate(control)["rate"],
        "soft_floor": report.rate(cells["floor soft"])["rate"],
        "hard_floor": report.rate(cells["floor hard"])["rate"],
        "soft_decay": soft["decay"],
        "soft_decay_low": soft["low"],
        "hard_decay": hard["decay"],
        "survived": report.rate(survived)["rate"],
        "survived_by_agent": {
            agent: report.rate([row for row in survived if row.cell.model == agent]) for agent in AGENTS
        },
        "dropped": report.rate([row for row in compacted if row.survived is False and row.kind == "soft"])[
            "rate"
        ],
        "budget_spearman": budgets["spearman"],
        "row_over_column": table["ratio"],
        "pinned": report.rate(pinned)["rate"],
        "head_tail": report.rate(ends)["rate"],
        "pinned_against_control": report.difference(control, pinned),
        "head_tail_against_control": report.difference(control, ends),
        "utility": report.utility(cells["control twin"] + cells["pinned twin"], tools_asked()),
        "unreadable": sum(row.result in ("unparseable", "error") for row in every),
        "invalid": sum(row.result == "invalid" for row in every),
        "episodes": len(every),
        "sessions_a_cell": min(len(part) for part in cells.values()),
        "decomposition": report.decomposition(compacted),
        "budgets": budgets["points"],
        "table": table,
        "cells": {name: report.rate(rows) for name, rows in cells.items()},
        "interval_of_survived": _span([row.violated for row in survived if row.graded]),
    }


def _span(hits: Sequence[bool]) -> list[float] | None:
    if not hits:
        return None
    found = stats.wilson(sum(hits), len(hits))
    return [found.low, found.high]


def stress(n: int = 500, seed: int = 0, progress: Progress = silent) -> Json:
    """What an adversary's texts do to soft rules, ``n`` sessions a cell: findings without a target.

    ``pinned``: by wording of the pin and agent, the rule pinned and, behind the summary, nothing more or one
    of the three stress tests; then the six framings of the injection. ``unpinned``: by agent, the summary
    alone, bulk text, and the framings. ``survival``: how often the rule survived those: no agent decides it.
    """
    return stressed(open_bench(n, seed, progress))


def stressed(bench: Bench) -> Json:
    """The findings of :func:`stress`."""
    ways = {"compactor": "summarise", "summariser": SUMMARISERS[0], "words": WORDS}
    pins = ("defense_pin", *STRESS, *(f"defense_pin_attack {name}" for name in FRAMINGS))
    open_ = ("compaction", "attack_volume", *(f"attack_inject {name}" for name in FRAMINGS))

    def cells(at: Bench, agent: str, names: Sequence[str]) -> dict[str, list[Episode]]:
        parts = {name: name.split() for name in names}
        return {
            name: at.cell(part[0], "soft", agent, **ways, framing=part[1] if part[1:] else None)
            for name, part in parts.items()
        }

    pinned = {
        f"{word} {agent}": cells(replace(bench, hardened=word == "hardened"), agent, pins)
        for word, agent in product(("hardened", "plain"), AGENTS)
    }
    unpinned = {agent: cells(bench, agent, open_) for agent in AGENTS}
    first = unpinned[AGENTS[0]]
    return {
        "pinned": {
            key: {name: report.rate(rows) for name, rows in one.items()} for key, one in pinned.items()
        },
        "unpinned": {
            key: {name: report.rate(rows) for name, rows in one.items()} for key, one in unpinned.items()
        },
        "survival": {name: report.survival_of(rows) for name, rows in first.items()},
    }


def stress_table(found: Json) -> None:
    """Print the findings of :func:`stress`."""
    for part in ("pinned", "unpinned"):
        columns = list(found[part])
        print(f"{part + ', share of violations':38s} {'  '.join(f'{key:>24s}' for key in columns)}")
        for name in found[part][columns[0]]:
            cells = [found[part][key][name] for key in columns]
            told = "  ".join(
                f"{c['violations']:4d} of {c['n']:4d} = {c['rate']:5.1%}".rjust(24)
                if c["n"]
                else "-".rjust(24)
                for c in cells
            )
            unread = sum(c["unparseable"] + c["error"] + c["invalid"] for c in cells)
            alive = found["survival"].get(name) if part == "unpinned" else None
            print(
                f"{name:38s} {told}"
                + (f"  survival {alive:.1%}" if alive is not None else "")
                + (f"  not counted {unread}" if unread else "")
            )


def table_of(found: Json) -> None:
    """Print the figures."""
    for name, cell in found["cells"].items():
        print(
            f"{name:16s} {cell['violations']:4d} of {cell['n']:4d} = {cell['rate']:.3f}"
            f"  [{cell['low']:.3f}, {cell['high']:.3f}]  unreadable {cell['unparseable'] + cell['error']}"
        )
    for point in found["budgets"]:
        print(f"{point['words']:4d} words: survival {point['survival']:.3f}, violation {point['rate']:.3f}")
    table = found["table"]
    for name, line in zip(table["summarisers"], table["cells"], strict=True):
        told = ", ".join(f"{a} {c['rate']:.3f}" for a, c in zip(table["agents"], line, strict=True))
        print(f"{name:20s} {told}")


def main() -> None:
    """The figures alone, for a look."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stress", action="store_true", help="the adversary's texts instead")
    args = parser.parse_args()
    began = time.monotonic()
    if args.stress:
        stress_table(stress(args.n, args.seed))
        return
    found = measure(args.n, args.seed)
    table_of(found)
    print({k: v for k, v in found.items() if not isinstance(v, dict | list)}, found["utility"])
    print(json.dumps({"seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
