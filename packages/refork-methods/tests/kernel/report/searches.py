"""Searches made up for the report's tests: every number is invented, the form is the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from refork.plain import canonical
from refork_methods.kernel.bench.result import Candidate

NAIVE = """// refork: entry=matmul n=512
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float s = 0;
            for (int k = 0; k < n; k++)
                s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
"""
MOVES = [
    "interchange(k,j)",
    "restrict",
    "tile(k,64)",
    "jam(i,4)",
    "unroll(k,8)",
    "flags(-ffast-math)",
    "pad(b,16)",
]
TOOLS = ["StridedAccess", "ScalarFallback", "CapacityMiss", "LoadPressure", "StoreTraffic"]
ERRORS = [
    ("build", "kernel.c:7:22: error: 'kk' undeclared (first use in this function)\n   s += a[kk];\n"),
    ("check", "c[1031] is 3.25, the reference says 3.75: relative error 0.13 > 0.0001"),
    ("run", "stopped by signal 11 (segmentation fault)"),
    ("cheat", "the result of the first call was returned again"),
]


def finding(tool: str) -> dict[str, Any]:
    return {
        "tool": tool, "category": "memory", "severity": "critical" if tool == TOOLS[0] else "warn",
        "cause": f"{tool}: 0.505 D1 read misses per flop in the loop over k.",
        "action": "Interchange the loops over j and k.", "metrics": {"misses_per_flop": 0.505},
        "expected_gain": [2.0, 12.0], "evidence": ["matmul.c:7  s += a[i * n + k] * b[k * n + j];"],
    }  # fmt: skip


def right(speedup: float, reference: float = 0.19) -> dict[str, Any]:
    return {
        "ok": True, "stage": "done", "why": "", "error": 2.1e-6, "seconds": reference / speedup,
        "reference_seconds": reference, "speedup": speedup, "samples": [reference / speedup] * 7,
        "low": speedup * 0.95, "high": speedup * 1.04, "noise": 1.06, "cheat": "", "calls": 1,
    }  # fmt: skip


def failed(stage: str, why: str) -> dict[str, Any]:
    return {**dict.fromkeys(right(1.0)), "ok": False, "stage": stage, "why": why, "samples": [], "cheat": ""}


FLAGS = ("-O3", "-march=native")


def line(
    number: int, parent: int, source: str, evaluated: dict[str, Any], *, move: str = "", why: str = "",
    answers: tuple[str, ...] = (), notes: tuple[str, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    """A kernel as it is recorded; with its source, which the record names by digest."""
    return {
        "number": number, "parent": parent, "move": move, "family": "", "why": why, "answers": list(answers),
        "refused": "", "source": source, "flags": list(FLAGS), "evaluated": evaluated, "notes": list(notes),
    }  # fmt: skip


def matmul(size: int = 41, seed: int = 0) -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]]]:
    """A search in which about six of ten kernels are right, and its findings by node."""
    draw = np.random.default_rng(seed)
    lines = [line(0, -1, NAIVE, right(1.0))]
    seen = {0: [finding("StridedAccess"), finding("ScalarFallback")]}
    speed: list[float] = [1.0]
    for number in range(1, size):
        works = [i for i, s in enumerate(speed) if s]
        parent = int(draw.choice(works)) if draw.random() < 0.5 else int(np.argmax(speed))
        seen.setdefault(parent, [finding(str(tool)) for tool in draw.choice(TOOLS, 2, replace=False)])
        gain = float(draw.choice([0.8, 0.98, 1.0, 1.1, 1.8, 3.5], p=[0.2, 0.2, 0.2, 0.2, 0.15, 0.05]))
        own = 0.0 if draw.random() < 0.35 else min(26.0, speed[parent] * gain)
        move, tool = str(draw.choice(MOVES)), str(draw.choice(seen[parent])["tool"])
        source = lines[parent]["source"].replace(
            "    for (int i", f"    /* {move}, {number} */\n    for (int i", 1
        )
        outcome = right(own) if own else failed(*ERRORS[int(draw.integers(len(ERRORS)))])
        notes = (f"fact: {move} was tried",) if number % 5 == 1 else ()
        lines.append(
            line(
                number,
                parent,
                source,
                outcome,
                move=move,
                why=f"{tool} asks for it",
                answers=(tool,),
                notes=notes,
            )
        )
        speed.append(own)
    return lines, seen


def facts(**changed: Any) -> dict[str, Any]:
    return {
        "settings": {"evaluations": 40, "search": "mcts", "seed": 0, "tree": {"explore": 0.7}},
        "writer": "rewrite",
        "problem": {
            "name": "matmul", "entry": "matmul", "suffix": ".c", "sizes": {"n": 512},
            "flops": 2.0 * 512**3, "bytes": 12.0 * 512**2, "rtol": 1e-4, "atol": 1e-4,
        },
        "ceilings": {"flops": 48e9, "bandwidth": 11e9, "noise": 1.06},
        "state": "running", "best": None, "final": None,
        "machine": {"cpu": "Some Processor 1", "cores": "2", "compiler": "gcc 12.2.0"},
        **changed,
    }  # fmt: skip


def store(
    folder: Path,
    lines: list[dict[str, Any]],
    seen: dict[int, list[dict[str, Any]]] | None = None,
    **changed: Any,
) -> Path:
    """Write a search's folder as the search does, less its care for crashes."""
    (folder / "sources").mkdir(parents=True)
    (folder / "search.json").write_text(json.dumps(facts(**changed)))
    with (folder / "nodes.jsonl").open("w") as stream:
        for one in lines:
            made = Candidate(one["source"], tuple(one["flags"]))
            (folder / "sources" / f"{made.digest}.c").write_text(made.source)
            stream.write(canonical({**one, "source": made.digest}) + "\n")
    with (folder / "findings.jsonl").open("w") as stream:
        for number, found in (seen or {}).items():
            stream.write(
                canonical({"number": number, "findings": found, "counters": {}, "absent": {}}) + "\n"
            )
    return folder
