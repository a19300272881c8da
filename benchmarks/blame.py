"""Which step lost a run: Refork, tracefork and retrial on planted agents whose law is known.

Every agent is a real program (`parts/blame_agent.py`) that asks a provider on this machine for several turns.
The provider draws its answers by the agent's law, the same for whoever asks. The law gives the chance of
success after every recorded answer, so which steps are right to blame is computed: those over which it falls
by 0.1 or more and never comes back. Of a conjunction both halves are right. Kinds: a single cause; two
mistakes that lose the run together; a mistake that a later turn repeats, since it reads it; a mistake that is
repaired, beside one that is not; and a program that fails by a coin of its own, whatever is answered.

For each tool: how often the first step that it blames is right (a tool that blames none is wrong, and a coin
has no right step), how often it blames any for a coin, and what it asked of the provider after the recorded
run. tracefork and retrial run from their packages, in a process of their own, with the program's loop as it
is (`parts/blame_peers.py`). They grade by a model's last words, and are given how the program ended.
tracefork: every answer drawn anew, at its own null of 0.05 and at the agent's true chance; the last step of
its responsible set, which is a reading of ours; its coalition walk; and as its command does it. retrial: one
and three samples a probe. kinescope and agent-rewind replay a run and let one step be replaced by hand; they
have nothing that says which step.

The full form takes more than an hour on two cores. With ``--rows FILE`` (REFORK_BLAME_ROWS) each agent's
outcome is written there as it comes, and a run that was stopped goes on; rows of other code do not count.

The peers need Python 3.12: REFORK_PEERS312 names one that has them. Without it they are not run, and their
figures are null. The programs' own coins are not seeded, so figures move a little from run to run. Seeds from
1000 were for development; those below are reported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from parts import blame_agent as agent
from parts.blame_plants import KINDS, Plant, Provider, plant
from parts.peer_env import Worker, peer_python
from refork import agents, stats
from refork.tree import Tree

HERE: Final = Path(__file__).resolve().parent / "parts"
PACKAGES: Final = ("tracefork==1.0.0", "retrial==0.3.0")
#: What is asked of the peers' process, and the tools that it answers for.
PEERS: Final = {
    "tracefork": ("tracefork", "tracefork_last", "tracefork_null_known"),
    "tracefork_shapley": ("tracefork_shapley",),
    "tracefork_command": ("tracefork_command",),
    "retrial_1": ("retrial_1",),
    "retrial_3": ("retrial_3",),
}
#: Whose requests a tool's are, where it goes on from the trials of another.
ASKED_BY: Final = dict.fromkeys(("tracefork_last", "tracefork_null_known"), "tracefork")
#: Agents of each kind: in full 200.
FULL: Final = dict.fromkeys(KINDS, 36) | {"null": 56}
QUICK: Final = dict.fromkeys(KINDS, 2) | {"null": 4}
Json = dict[str, Any]


@dataclass(frozen=True)
class Blame:
    """What a tool said of one agent: steps that it blames, all in its order, and requests to the provider."""

    agent: Plant
    blamed: tuple[int, ...]
    ranked: tuple[int, ...]
    calls: int

    @property
    def right(self) -> bool:
        """Whether the first step that it blames is one to blame."""
        return bool(self.blamed) and self.blamed[0] in self.agent.blamed()


def refork_blames(one: Plant, provider: Provider, base: str, folder: Path) -> Blame:
    """Record the program until it loses, and ask why."""
    orders = folder / f"{one.name}.json"
    orders.write_text(json.dumps(one.orders))
    command = [sys.executable, str(agent.__file__), str(orders)]
    with Tree.open(folder / f"{one.name}.db") as tree:
        while True:
            to = f"{base}/{one.name}/record-refork/v1"
            run = agents.record(tree, command, folder=folder, to=to, quiet=True)
            if run.exit:
                break
        how = agents.ProgramForkSettings(to=f"{base}/{one.name}/refork/v1", jobs=4)
        told = agents.why(tree, run, settings=how)
    calls = provider.asked[one.name, "refork"]
    assert calls == told.calls, (one.name, calls, told.calls)
    return Blame(
        one,
        tuple(found.step for found in told.findings if found.confirmed),
        tuple(found.step for found in told.findings),
        calls,
    )


def peers_blame(one: Plant, provider: Provider, base: str, worker: Worker) -> dict[str, Blame]:
    """The same agent, by every peer."""
    asked = {"orders": one.orders, "base": f"{base}/{one.name}", "chance": one.value([])}
    found = {}
    for does, tools in PEERS.items():
        told = worker.ask(do=does, agent=asked)
        for tool in tools:
            calls = provider.asked[one.name, ASKED_BY.get(tool, tool)]
            found[tool] = Blame(one, tuple(told[tool]["blamed"]), tuple(told[tool]["ranked"]), calls)
    return found


class Rows:
    """Outcomes in a file of JSON lines, those of this code alone; without a file they are kept nowhere."""

    def __init__(self, file: Path | None, plants: Sequence[Plant]) -> None:
        self._file, self._plants = file, {one.name: one for one in plants}
        code = [*Path(agents.__file__).parent.glob("*.py"), *HERE.glob("blame_*.py")]
        texts = b"".join(path.read_bytes() for path in sorted(code))
        self._code = hashlib.sha256(texts + repr(PACKAGES).encode()).hexdigest()[:16]
        self.known: dict[tuple[str, str], Blame] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                row = json.loads(line)
                if row["code"] == self._code and row["agent"] in self._plants:
                    blamed, ranked = tuple(row["blamed"]), tuple(row["ranked"])
                    one = Blame(self._plants[row["agent"]], blamed, ranked, row["calls"])
                    self.known[row["tool"], row["agent"]] = one

    def add(self, tool: str, one: Blame) -> None:
        """Keep an outcome."""
        self.known[tool, one.agent.name] = one
        if self._file is not None:
            row = {"tool": tool, "agent": one.agent.name, "blamed": one.blamed, "ranked": one.ranked}
            with self._file.open("a") as file:
                file.write(json.dumps(row | {"calls": one.calls, "code": self._code}) + "\n")

    def of(self) -> dict[str, list[Blame]]:
        """All outcomes by tool, agents in their order."""
        found: dict[str, list[Blame]] = defaultdict(list)
        for tool in dict.fromkeys(tool for tool, _ in self.known):
            found[tool] = [self.known[tool, name] for name in self._plants if (tool, name) in self.known]
        return found


def share(hits: Iterable[bool]) -> float | None:
    """The share of hits; None of nothing."""
    all_hits = list(hits)
    return round(sum(all_hits) / len(all_hits), 4) if all_hits else None


def figures(said: Sequence[Blame]) -> Json:
    """A tool's figures over the agents."""
    causes = [one for one in said if one.agent.kind != "null"]
    coins = [bool(one.blamed) for one in said if one.agent.kind == "null"]
    by_kind = {
        f"top1_{kind}": share(one.right for one in causes if one.agent.kind == kind)
        for kind in KINDS
        if kind != "null"
    }
    sure = stats.clopper_pearson(sum(coins), len(coins)) if coins else None
    return {
        "top1": share(one.right for one in causes),
        "top1_of_ranked": share(bool(one.ranked) and one.ranked[0] in one.agent.blamed() for one in causes),
        **by_kind,
        "blames_any": share(bool(one.blamed) for one in causes),
        "false_blame_null": share(coins),
        "false_blame_null_low": sure and round(sure.low, 4),
        "false_blame_null_high": sure and round(sure.high, 4),
        "calls": sum(one.calls for one in said),
        "calls_a_run": round(sum(one.calls for one in said) / max(len(said), 1), 1),
    }


def floors(plants: Sequence[Plant]) -> Json:
    """What blaming by position would hit, and at random: a step of all steps is the expectation."""
    causes = [one for one in plants if one.kind != "null"]
    places: dict[str, Callable[[Plant], int]] = {
        "first": lambda one: 0,
        "last": lambda one: one.steps - 1,
        "last_entry": lambda one: one.steps - 2,
    }
    by_place = {
        f"top1_{name}": share(at(one) in one.blamed() for one in causes) for name, at in places.items()
    }
    return by_place | {
        "top1_random": round(sum(len(one.blamed()) / one.steps for one in causes) / len(causes), 4)
    }


def main() -> None:
    """Run all tools on all agents, and print the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a dozen agents")
    parser.add_argument("--first", type=int, default=0, help="first seed; from 1000 on: for development")
    kept = os.environ.get("REFORK_BLAME_ROWS")
    parser.add_argument("--rows", type=Path, default=kept, help="keep each outcome here, and go on from it")
    asked = parser.parse_args()
    counts = QUICK if asked.quick else FULL
    plants = [plant(kind, asked.first + n) for kind in KINDS for n in range(counts[kind])]
    provider = Provider(plants)
    python = peer_python(PACKAGES, "REFORK_PEERS312", make=not asked.quick)
    rows = Rows(asked.rows, plants)
    spent: dict[str, float] = defaultdict(float)
    public: Json = {}
    with provider.serving() as base, tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        for one in plants:
            if ("refork", one.name) in rows.known:
                continue
            last = refork_blames(one, provider, base, Path(folder))
            rows.add("refork", last)
            print(
                f"{one.name}: to blame {sorted(one.blamed())}, refork {list(last.blamed)}, "
                f"{last.calls} calls, {time.monotonic() - began:.0f} s",
                flush=True,
            )
        spent["refork"] = time.monotonic() - began
        if python is not None:
            with Worker(python, HERE / "blame_peers.py") as worker:
                public = worker.ask(do="bench")
                for one in plants:
                    # The last of them is there once all are.
                    if (next(reversed(PEERS.values()))[-1], one.name) not in rows.known:
                        for tool, blame in peers_blame(one, provider, base, worker).items():
                            rows.add(tool, blame)
            spent["peers"] = time.monotonic() - began - spent["refork"]
    report(plants, rows.of(), public, {tool: round(seconds) for tool, seconds in spent.items()})


def report(plants: Sequence[Plant], said: dict[str, list[Blame]], public: Json, spent: Json) -> None:
    """Print a line a tool, and all figures as one object."""
    told = {tool: figures(blames) for tool, blames in said.items()}
    ours = told.pop("refork")
    for tool, row in {"refork": ours, **told}.items():
        kinds = ", ".join(f"{kind} {row[f'top1_{kind}']}" for kind in KINDS if kind != "null")
        print(
            f"{tool:22} top-1 {row['top1']} ({kinds}; of its whole order {row['top1_of_ranked']}), "
            f"blames a coin {row['false_blame_null']}, {row['calls_a_run']} calls a run"
        )
    best = max(told, key=lambda tool: told[tool]["top1"], default=None)
    # Of the settings of one peer, the one that blames best by its whole order as well.
    peer = told[best] if best is not None else None
    print(
        json.dumps(
            {
                "agents": len(plants),
                "top1": ours["top1"],
                "top1_best_peer": peer and peer["top1"],
                "best_peer": best,
                "false_blame_null": ours["false_blame_null"],
                "false_blame_null_peer": peer and peer["false_blame_null"],
                "calls_ratio_to_peer": peer and round(ours["calls"] / peer["calls"], 3),
                "ours": ours,
                "floors": floors(plants),
                "peers": told,
                "tracefork_bench": public or None,
                "seconds": spent,
            }
        )
    )


if __name__ == "__main__":
    main()
