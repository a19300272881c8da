"""A household run that could have happened: one task, its tree, the swept failure, the effect, the curve."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from refork.report.data import Cliff, EffectData, Gain, RateData, Token, Trace, TraceStep
from refork_testbed.demo.data import CurvePoint, ReportData, Stage, TreeData, TreeNode

ROOMS = {
    "hall": {"north": "library", "east": "kitchen", "west": "cellar door"},
    "library": {"south": "hall", "east": "study"},
    "kitchen": {"west": "hall", "north": "pantry"},
    "cellar door": {"east": "hall"},
    "study": {"west": "library"},
    "pantry": {"south": "kitchen"},
}


def household_tree(size: int, seed: int = 3) -> TreeData:
    """Runs of a household policy, the first a failure that was forked at three of its steps."""
    rng = random.Random(seed)
    rows: list[dict] = []
    task = "Find the brass key and open the cellar."

    def add(parent: str | None, kind: str, label: str, **more) -> str:
        rows.append({"id": f"n{len(rows):04d}", "parent": parent, "kind": kind, "label": label, **more})
        return rows[-1]["id"]

    def run_on(parent: str, room: str, skill: float, depth: int, trace: bool = False) -> list[str]:
        """One run to its verdict; the ids of its observations."""
        stops = []
        has_key = False
        for move_number in range(depth, 5):
            move = rng.choice(sorted(ROOMS[room]))
            act = f"go {move}"
            room = ROOMS[room][move]
            seen = f"You are in the {room}."
            if room == "study" and not has_key:
                act, seen, has_key = "take brass key", "You hold the brass key.", True
            parent = add(parent, "action", act, on_trace=trace, forked=not trace and move_number == depth)
            parent = add(parent, "observation", seen, on_trace=trace)
            stops.append((parent, room))
        won = rng.random() < skill and not trace
        add(parent, "verdict", "cellar open" if won else "out of steps", reward=float(won), on_trace=trace)
        return stops

    root = add(None, "task", task, on_trace=True)
    start = add(
        root, "observation", "You are in the hall. There are doors north, east and west.", on_trace=True
    )
    stops = run_on(start, "hall", 0, 0, trace=True)
    forks = [
        (start, "hall", 0.7, 0),
        (stops[0][0], stops[0][1], 0.72, 1),
        (stops[1][0], stops[1][1], 0.14, 2),
    ]
    turn = 0
    while len(rows) < size:
        parent, room, skill, depth = forks[turn % len(forks)]
        run_on(parent, room, skill, depth)
        turn += 1
    return TreeData(task=task, nodes=_with_success(rows))


def _with_success(rows: list[dict]) -> tuple[TreeNode, ...]:
    wins: dict[str, list[float]] = {row["id"]: [] for row in rows}
    parents = {row["id"]: row["parent"] for row in rows}
    for row in rows:
        if "reward" in row:
            at: str | None = row["id"]
            while at is not None:
                wins[at].append(row["reward"])
                at = parents[at]
    return tuple(
        TreeNode(
            **{k: v for k, v in row.items() if k != "reward"},
            success=sum(wins[row["id"]]) / len(wins[row["id"]]) if wins[row["id"]] else None,
            leaves=max(1, len(wins[row["id"]])),
        )
        for row in rows
    )


def household_trace(seed: int = 5) -> Trace:
    """Forty tokens over five turns; the chance of success falls at "east"."""
    rng = random.Random(seed)
    turns = [
        (
            "You are in the hall. There are doors north, east and west.",
            "think the key may be in the study; go north",
        ),
        (
            "You are in the library. There are doors south and east.",
            "think the study is next to the library; go east",
        ),
        ("You are in the study. A brass key lies here.", "take brass key"),
        ("You hold the brass key.", "think the cellar is below the kitchen; go west"),
        ("You are in the library.", "go south; go east; open pantry <end>"),
    ]
    steps = [TraceStep(kind="task", text="Find the brass key and open the cellar. You have five moves.")]
    index, cliff = 0, None
    for turn, (seen, said) in enumerate(turns):
        steps.append(TraceStep(kind="observation", text=seen))
        tokens = []
        for i, word in enumerate(said.split(" ")):
            base = 0.71 if cliff is None else 0.12
            value = None if index == 5 else min(0.99, max(0.0, base + rng.uniform(-0.05, 0.05)))
            if cliff is not None and index - cliff == 1:
                value = 0.12
            if turn == 4 and word == "east;":
                cliff, value = index, 0.71
            low = None if value is None else max(0.0, value - 0.11)
            high = None if value is None else min(1.0, value + 0.11)
            text = word if i == 0 else " " + word
            tokens.append(
                Token(text=text, index=index, p=rng.uniform(0.3, 1), value=value, low=low, high=high, n=64)
            )
            index += 1
        steps.append(TraceStep(kind="action", text=said, tokens=tuple(tokens)))
    steps.append(TraceStep(kind="verdict", text="Out of moves: the cellar is still locked."))
    assert cliff is not None
    return Trace(
        steps=tuple(steps),
        outcome=0.0,
        cliff=Cliff(token_index=cliff, text=" east;", before=0.71, after=0.12),
    )


def household_report(nodes: int = 110) -> ReportData:
    curve = [0.31, 0.34, 0.42, 0.47, 0.55, 0.56, 0.61]
    return ReportData(
        title="refork demo, world household",
        command="refork demo --world household --seed 7",
        world="household, 5 rooms, seeded tasks",
        policy={"name": "household agent", "weights": "b2f7c81e9a03", "parameters": 412_160},
        seconds=134.2,
        versions={"refork": "0.1.0", "torch": "2.13.0", "transformers": "5.0.1", "python": "3.11.9"},
        settings={
            "seed": 7,
            "sampling": {"temperature": 1.0, "top_p": None},
            "draws": 64,
            "recipe": "9c1fa3e77d20",
        },
        curve=tuple(
            CurvePoint(
                update=i,
                success=v,
                low=v - 0.065,
                high=v + 0.065,
                tokens=i * 48_200,
                note="the sweep's siblings join the batch" if i == 3 else None,
            )
            for i, v in enumerate(curve)
        ),
        before=RateData(rate=0.31, low=0.25, high=0.377, n=200),
        after=RateData(rate=0.61, low=0.541, high=0.675, n=200),
        gain=Gain(
            difference=0.30,
            low=0.22,
            high=0.38,
            p=2e-9,
            n=200,
            method="paired by task and noise; Newcombe interval, exact McNemar test",
        ),
        tree=household_tree(nodes),
        trace=household_trace(),
        effect=EffectData(
            what="remove the last token, “ east;”, and sample on",
            before_text="go south; go east; open pantry",
            after_text="go south; go",
            base=RateData(rate=0.109, low=0.054, high=0.209, n=64),
            other=RateData(rate=0.656, low=0.534, high=0.76, n=64),
            difference=0.547,
            low=0.40,
            high=0.66,
            p=3.2e-8,
            method="Newcombe's paired interval, exact McNemar test",
            paired=True,
            unpaired_low=0.38,
            unpaired_high=0.67,
            draws=64,
            ungraded=0,
            tokens=2_318,
            seconds=3.4,
        ),
        stages=(
            Stage(
                title="Build the agent",
                detail="a 0.4 M parameter model, trained on 2,000 solved tasks",
                seconds=48.1,
            ),
            Stage(title="Grow the tree", detail="40 held-out tasks, 8 runs each", seconds=12.9),
            Stage(title="Sweep one failed run", detail="64 draws from each of its 40 tokens", seconds=9.2),
            Stage(title="Prove the change", detail="64 paired draws per arm", seconds=3.4),
            Stage(title="Train", detail="6 policy-gradient updates on sibling credit", seconds=52.3),
            Stage(title="Measure", detail="200 held-out tasks, before and after", seconds=8.3),
        ),
        code="base = fork(point, policy, draws=64)\n"
        "other = fork(point, policy, draws=64, change=Remove(tokens=1))\n"
        'effect = compare(base, other, score="success")',
    )


@pytest.fixture
def make_report() -> Callable[[int], ReportData]:
    """A report whose tree has about so many nodes."""
    return household_report


@pytest.fixture
def report() -> ReportData:
    """The whole report with a tree of 110 nodes."""
    return household_report()
