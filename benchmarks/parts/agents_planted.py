"""Planted programs: do a fork's intervals hold the truth, and how soon is there an answer?

The agents and their laws are those of `blame_plants`. So what a fork ought to show is known: what the chance
of success loses over the answer at a step.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from parts import blame_agent
from parts.blame_plants import KINDS, Plant, Provider, plant
from refork import agents, stats
from refork.forking import compare
from refork.tree import Tree
from refork.types import Json

README: Final = Path(__file__).resolve().parents[2] / "README.md"
#: Draws of an arm where none are named.
DRAWS: Final = 16
#: The planted agents here are none of those that the blame benchmark reports.
SEEDS: Final = 5000


def truth(one: Plant, step: int) -> float:
    """What drawing the answer at a step anew adds to the chance of success, exact."""
    return one.value(one.recorded[:step]) - one.value(one.recorded[: step + 1])


def run_on(one: Plant, answers: Sequence[bool], rng: random.Random) -> float:
    """One run from some answers on, answer by answer, as program and model go."""
    said = list(answers)
    while len(said) < len(one.errs):
        said.append(rng.random() < one.chance_wrong(said))
    lost = any(all(said[turn] for turn in group) for group in one.lost_by)
    return float(not lost and rng.random() >= one.unsaved)


def coverage(repetitions: int) -> Json:
    """How often the interval of a fork holds the truth, on outcomes that are drawn as the programs give them.

    Arms as a fork of `again` has them, with the interval that `compare` takes for arms without common noise.
    Steps at which something is won or lost, and any step of a program that fails by a coin alone.
    """
    held, rng = 0, random.Random(SEEDS)
    for number in range(repetitions):
        one = plant(KINDS[number % len(KINDS)], SEEDS + number)
        step = rng.choice([turn for turn in range(len(one.errs)) if one.kind == "null" or truth(one, turn)])
        base = [run_on(one, one.recorded[: step + 1], rng) for _ in range(DRAWS)]
        other = [run_on(one, one.recorded[:step], rng) for _ in range(DRAWS)]
        seen = stats.unpaired_difference(base, other).interval
        held += seen.low <= truth(one, step) <= seen.high
    share = held / repetitions
    error = math.sqrt(share * (1 - share) / repetitions)
    return {
        "planted_coverage": round(share, 4),
        "planted_coverage_error": round(error, 4),
        "planted_repetitions": repetitions,
    }


def real_forks(count: int, draws: int, place: Path) -> Json:
    """Forks of the real planted programs: how many of their intervals hold the truth."""
    held, rng = 0, random.Random(SEEDS)
    plants = [plant(KINDS[number % len(KINDS)], SEEDS + number) for number in range(count)]
    provider = Provider(plants)
    with provider.serving() as base:
        for one in plants:
            orders = place / f"{one.name}.json"
            orders.write_text(json.dumps(one.orders))
            command = [sys.executable, str(blame_agent.__file__), str(orders)]
            with Tree.open(place / f"{one.name}.db") as tree:
                run = agents.record(
                    tree, command, folder=place, to=f"{base}/{one.name}/record/v1", quiet=True
                )
                step = rng.choice(
                    [turn for turn in range(len(one.errs)) if one.kind == "null" or truth(one, turn)]
                )
                how = agents.ProgramForkSettings(to=f"{base}/{one.name}/fork/v1", jobs=2)
                arms = agents.fork_run(tree, run, step, agents.ProgramChange("again"), draws, settings=how)
                seen = compare(*arms)
                outcomes = [
                    list(tree.score_map("success", [draw.leaf for draw in arm.draws], arm.judge[0]).values())
                    for arm in arms
                ]
            # The interval is the one whose coverage is counted above.
            again = stats.unpaired_difference(*outcomes).interval
            assert (seen.low, seen.high) == (again.low, again.high), one.name
            held += seen.low <= truth(one, step) <= seen.high
    return {"planted_forks": count, "planted_forks_held": held}


def readme_commands() -> list[list[str]]:
    """The commands that the first page gives for a program of one's own, in their order."""
    text = README.read_text().split("## On your own agent", 1)[1]
    block = re.search(r"```\w*\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block.group(1).splitlines() if line.startswith("refork ")]


def by_readme(count: int, place: Path) -> Json:
    """The first page's commands, run in their order on failed programs until `why` names an answer.

    ``commands_to_answer`` is the most that one took, None where one got no answer, or a wrong one. Seconds
    are those from the first command's start to the effect.
    """
    plants = [plant("single", SEEDS + 500 + number) for number in range(count)]
    provider, taken, seconds = Provider(plants), list[int | None](), list[float]()
    with provider.serving() as base:
        for one in plants:
            folder = place / f"readme-{one.name}"
            folder.mkdir()
            (folder / "orders.json").write_text(json.dumps(one.orders))
            text = Path(str(blame_agent.__file__)).read_text()
            text = text.replace("sys.argv[1]", "'orders.json'").replace(
                "books are wrong", "books could not be saved"
            )
            (folder / "my_agent.py").write_text(text)
            began = time.monotonic()
            number = _answered(one, folder, f"{base}/{one.name}")
            seconds.append(time.monotonic() - began)
            taken.append(number)
    known = [number for number in taken if number is not None]
    return {
        "commands_to_answer": max(known) if len(known) == len(taken) else None,
        "seconds_to_first_effect_median": round(statistics.median(seconds), 1),
        "planted_answered": len(known),
        "planted_asked": count,
    }


def _answered(one: Plant, folder: Path, base: str) -> int | None:
    for number, words in enumerate(readme_commands(), start=1):
        who = "record" if "record" in words else "readme"
        environment = {**os.environ, "ANTHROPIC_BASE_URL": f"{base}/{who}"}
        command = [sys.executable, "-m", "refork", *words[1:]]
        command = [sys.executable if word == "python" else word for word in command]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if "why" in words:
            found: Mapping[str, Any] = json.loads(next(folder.glob("case-*/case.json")).read_text())
            blamed = [lost["step"] for lost in found["findings"] if lost["confirmed"]]
            right = done.returncode == 0 and bool(blamed) and blamed[0] in one.blamed()
            return number if right else None
    return None
