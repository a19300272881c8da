"""Every method once on a real log, by its own command: what it says, and whether one would act on it.

Run: python benchmarks/real_logs.py [--logs FOLDER] [--quick]. Logs are the files of a folder
(``--logs``, else $REFORK_REAL_LOGS, else shared/data/logs beside the repository), the fixtures that other
packages wrote for the tests of formats, and a session that LangGraph writes here. Where a command needs files
that no log is, they are made of the log as a practitioner would (an outcome of each rollout and three cheap
checks of its text for the gate, counts for a ceiling). Where it needs a model, a tiny random one stands for
it: then the mechanics are real, and the numbers say nothing of the agent.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from refork import cli  # noqa: E402
from refork.formats import import_file, reader_for  # noqa: E402
from refork.tree import Tree  # noqa: E402
from scratch import scratch  # noqa: E402

FIXTURES = ROOT / "packages/refork/tests/formats/fixtures"
GIVEN = Path(os.environ.get("REFORK_REAL_LOGS") or ROOT.parent / "shared/data/logs")
#: Fixtures that the packages themselves wrote, for where no folder of logs is given.
OURS: Final = (
    *("inspect.eval", "inspect-server.json.gz", "langgraph.json.gz", "openai-agents.json.gz"),
    *("mini-tools.traj.json", "tau-bench.json"),
)
MADE = ROOT / "benchmarks/parts/real_logs_made.py"
#: A path of this machine, up to its last name.
PATH: Final = r"(?<!\w)/[^\s(]*/"
#: Which method of the index of papers, in its order, and what it reads.
METHODS: Final = (
    "theory",
    "gate",
    "cliff",
    "rot",
    "crosscoder",
    "speculate",
    "probe",
    "route",
    "credit",
    "kernel",
    "recovery",
    "memory",
    "forensics",
    "implicit",
    "simulate",
    "judge",
    "localize",
    "collapse",
)


@dataclass
class Logs:
    """What is there to read. ``graded`` is the tree with most graded rollouts, and ``score`` their name."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    trees: dict[str, Path] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    graded: str = ""
    score: str = ""


@dataclass
class Said:
    """What a command said: its exit status (None: it crashed), its output and its JSON, where it has any."""

    command: str
    status: int | None
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON that was printed."""
        return json.loads(self.out)


def refork(*words: Any) -> Said:
    """One command in this process, as it would be typed."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["refork", *map(str, words)]
    status: int | None = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        status = int(stop.code or 0)
    except Exception:
        status = None
        err.write(traceback.format_exc())
    finally:
        sys.argv = before
    return Said(" ".join(map(str, words)), status, out.getvalue(), err.getvalue())


def gather(given: Path, work: Path) -> Logs:
    """The logs, each as a tree."""
    from parts.real_logs_made import POLICY, langgraph_calls

    logs = Logs(work)
    found = sorted(p for p in given.iterdir() if p.suffix != ".md") if given.is_dir() else []
    for file in [*found, *(FIXTURES / name for name in OURS)]:
        if file.suffix == ".gz":
            plain = work / file.name.removesuffix(".gz")
            plain.write_bytes(gzip.decompress(file.read_bytes()))
            logs.files.setdefault(plain.name, plain)
        else:
            logs.files.setdefault(file.name, file)
    made = work / "langgraph-session.jsonl"
    langgraph_calls(made)
    (work / "rules.yaml").write_text(POLICY)
    logs.files[made.name] = made
    most = 0
    for name, file in logs.files.items():
        place = work / f"{name}.db"
        reader = reader_for(file)
        with Tree.open(place) as tree:
            import_file(tree, file, reader)
            tasks, leaves = len(list(tree.tasks())), len(list(tree.leaves()))
            scores = {one.name: one.count for one in tree.stats().scores}
        logs.trees[name] = place
        logs.facts[name] = {
            "format": reader.name,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest()[:16],
            "tasks": tasks,
            "rollouts": leaves,
            "scores": scores,
        }
        best = max(scores, key=lambda one: scores[one], default="")
        # A group of one rollout can be compared with nothing.
        if best and leaves > tasks and scores[best] > most:
            most, logs.graded, logs.score = scores[best], name, best
    return logs


def rollouts(logs: Logs) -> Iterator[tuple[str, str, str, float]]:
    """Task, name, text and outcome of every graded rollout."""
    with Tree.open(logs.trees[logs.graded], "r") as tree:
        leaves = list(tree.leaves())
        outcomes = tree.score_map(logs.score, leaves)
        for path in tree.paths([leaf for leaf in leaves if leaf.id in outcomes]):
            shown = "\n".join(step.text for step in path.steps[1:])
            yield path.root.id[:12], path.leaf.id[:12], shown, outcomes[path.leaf.id]


def pick(**paths: str) -> Callable[[Said], dict[str, Any]]:
    """Figures of the JSON that a command printed, each by its path."""

    def figures(said: Said) -> dict[str, Any]:
        found = {}
        for name, path in paths.items():
            value = said.data
            for part in path.split("/"):
                if value is not None:
                    value = value[int(part)] if isinstance(value, list) else value[part]
            found[name] = value
        return found

    return figures


def named(logs: Logs, *parts: str) -> str:
    """The first log whose name has one of some parts, in their order."""
    return next(name for part in parts for name in logs.files if name.startswith(part))


#: Cheap checks of what a rollout shows, as one writes them in a minute; none was chosen by what it finds.
CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "no-error": lambda text: "Error" not in text,
    "own-end": lambda text: "transfer_to_human" not in text,
    "short": lambda text: len(text) < 12_000,
}

# What is done with each method: a log, and what was said about it in the end.

Asked = tuple[str, list[Said], Callable[[Said], dict[str, Any]]]


def theory(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """A log says nothing of people choosing between two options."""
    name = named(logs, "swe-agent", "mini")
    return name, [refork("theory", "score", logs.files[name], "--json")], lambda said: {}


def gate(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Outcomes of rollouts with three checks that cost nothing."""
    file, out = logs.folder / "candidates.jsonl", logs.folder / "policy.json"
    rows = [
        {
            "instance": task,
            "candidate": name,
            "right": outcome >= 1.0,
            "verdicts": {check: passes(text) for check, passes in CHECKS.items()},
        }
        for task, name, text, outcome in rollouts(logs)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prices = [f"--price={name}=1" for name in (*CHECKS, "generate")] + ["--price=verify=30"]
    asked = [refork("gate", "fit", file, "--reward", 100, *prices, "--out", out, "--json")]
    if out.exists():
        asked.append(refork("gate", "replay", out, file, "--set", "folds=5", "--json"))
    plan = "comparisons/dp/gap"
    return logs.graded, asked, pick(gap=f"{plan}/estimate", low=f"{plan}/low", high=f"{plan}/high")


def cliff(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Two turns of a log, valued token by token by a stand-in."""
    name, policy = named(logs, "inspect-2025", "inspect"), stand(0)
    tree = logs.folder / "cliff.db"
    asked = [refork("tree", "import", tree, logs.files[name], "--policy", policy)]
    asked.append(
        refork(
            "cliff",
            "scan",
            "--tree",
            tree,
            "--policy",
            policy,
            "--success-regex",
            "(?i)yes",
            "--traces",
            "all",
            "--set",
            "limit=2",
            "--set",
            "draws=16",
            "--out",
            logs.folder / "cliff",
            "--json",
        )
    )
    return name, asked, pick(tokens="tokens", nominated="nominated", rollouts="rollouts")


def rot(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """The rule of a session of LangGraph whose history is summarised."""
    name = "langgraph-session.jsonl"
    asked = refork("rot", "audit", logs.files[name], "--policy", logs.folder / "rules.yaml", "--json")

    def figures(said: Said) -> dict[str, Any]:
        calls = said.data["sessions"][0]["calls"]
        rules = [(one["call"], one["rules"][0]) for one in calls if one["rules"]]
        return {
            "calls": len(calls),
            "lost_at": next((call for call, rule in rules if not rule["visible"]), None),
            "broken_at": next((call for call, rule in rules if rule["violated"]), None),
        }

    return name, [asked], figures


def crosscoder(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Hidden states of two stand-ins on a log's turns, and a small dictionary over them."""
    name, policy = named(logs, "inspect-2025", "inspect"), stand(0)
    tree, cache = logs.folder / "crosscoder.db", logs.folder / "cache"
    asked = [
        refork("tree", "import", tree, logs.files[name], "--policy", policy),
        refork(
            "crosscoder",
            "cache",
            "--tree",
            tree,
            "--a",
            policy,
            "--b",
            stand(1),
            "--layer",
            1,
            "--out",
            cache,
        ),
        refork(
            "crosscoder",
            "train",
            "--cache",
            cache,
            "--out",
            logs.folder / "coder",
            "--dict-size",
            32,
            "--k",
            4,
            "--set",
            "training.steps=20",
            "--set",
            "training.batch=16",
            "--json",
        ),
    ]
    return name, asked, pick(activations="activations", explained="fve")


def speculate(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """A drafter for a stand-in, trained on the prompts of a log."""
    name, policy = named(logs, "inspect-2025", "inspect"), stand(0)
    prompts, drafter = logs.folder / "prompts.jsonl", logs.folder / "drafter"
    asked = [
        refork("tree", "export", logs.trees[name], prompts, "--format", "openai-chat"),
        refork(
            "speculate",
            "train",
            "--model",
            policy,
            "--prompts",
            prompts,
            "--out",
            drafter,
            "--layers",
            1,
            "--set",
            "steps=2",
            "--set",
            "max_tokens=12",
            "--set",
            "rank=8",
            "--set",
            "batch=2",
            "--json",
        ),
        refork(
            "speculate",
            "bench",
            prompts,
            "--model",
            policy,
            "--drafter",
            drafter,
            "--batch",
            1,
            "--set",
            "max_tokens=12",
            "--set",
            "repeats=1",
            "--json",
        ),
    ]
    return name, asked, pick(tokens_a_round="batches/0/tau", other_tokens="batches/0/other_tokens")


def probe(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Whether a rollout hands over to a person: how much of it the task decides."""
    counts: dict[str, list[int]] = {}
    for task, _, text, _ in rollouts(logs):
        one = counts.setdefault(task, [0, 0])
        one[0] += "transfer_to_human" in text
        one[1] += 1
    file = logs.folder / "counts.jsonl"
    lines = ({"id": task, "refusals": r, "rollouts": n} for task, (r, n) in counts.items())
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = [
        refork("probe", "ceiling", "--tree", logs.trees[logs.graded], "--score", logs.score),
        refork("probe", "ceiling", "--counts", file, "--json"),
    ]
    top = "groups/pooled/ceiling"
    return (
        logs.graded,
        asked,
        pick(
            prompts="groups/pooled/prompts",
            rate="groups/pooled/refusal_rate",
            ceiling=f"{top}/estimate",
            se=f"{top}/se",
        ),
    )


def route(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Outcomes by the model that acted: a router needs two on the same tasks."""
    file = logs.folder / "outcomes.jsonl"
    rows, seen = [], {}
    for tree_file in logs.trees.values():
        with Tree.open(tree_file, "r") as tree:
            leaves = list(tree.leaves())
            for score in {one.name for one in tree.stats().scores}:
                outcomes = tree.score_map(score, leaves)
                for path in tree.paths([leaf for leaf in leaves if leaf.id in outcomes]):
                    worker = next((s.node.policy for s in path if s.node.policy), None)
                    if worker is not None and 0 <= outcomes[path.leaf.id] <= 1:
                        key = hashlib.sha256(path.root.text.encode()).hexdigest()[:12]
                        seen[key, worker] = seen.get((key, worker), -1) + 1
                        row = {"query": key, "worker": worker, "repeat": seen[key, worker]}
                        rows.append(row | {"reward": outcomes[path.leaf.id]})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "all logs", [refork("route", "frontier", file, "--json")], lambda said: said.data


def credit(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Which states rollouts of one task share."""
    tree = logs.trees[logs.graded]
    return (
        logs.graded,
        [refork("credit", "report", tree, "--score", logs.score, "--json")],
        pick(groups="graphs", mixed="mixed", merged="merged_later", compared="compared"),
    )


def kernel(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """A log holds no kernel."""
    name = named(logs, "swe-agent", "mini")
    return name, [refork("kernel", "diagnose", logs.files[name], "--json")], lambda said: {}


def recovery(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Ways back in rollouts."""
    tree = logs.trees[logs.graded]
    return (
        logs.graded,
        [refork("recovery", "audit", tree, "--score", logs.score, "--json")],
        pick(
            share="with_recovery/estimate",
            low="with_recovery/low",
            high="with_recovery/high",
            traces="traces",
            succeeded="recovered_and_succeeded",
            facing_back="successful/facing_back",
        ),
    )


def memory(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Lessons of rollouts."""
    place = logs.folder / "memory"
    asked = [
        refork("memory", "ingest", place, logs.trees[logs.graded], "--json"),
        refork("memory", "gate", place, "--json"),
        refork("memory", "show", place, "--json"),
    ]

    def figures(said: Said) -> dict[str, Any]:
        plans = asked[1].data["plans"]
        most = max((one["tasks"] for one in plans), default=0)
        return {"items": len(said.data["items"]), "plans": len(plans), "most": most}

    return logs.graded, asked, figures


def forensics(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Does the rule, put back into the prompt of the purchase, change it? The session's own planted model."""
    from parts.real_logs_made import RULE

    name = "langgraph-session.jsonl"
    calls = [json.loads(line)["messages"] for line in logs.files[name].read_text().splitlines()]
    last = [one for one in calls if "Buy the chair" in str(one[-1]["content"])][-1]
    (logs.folder / "environment.json").write_text(json.dumps({"messages": last}))
    (logs.folder / "case.toml").write_text(
        'name = "chair"\nquestion = "Why was the chair bought?"\nenvironment = "environment.json"\n'
        'base = { hits = 1, runs = 1 }\nmodel = { name = "planted buyer" }\n'
        'target = { action = "buys the chair", grader = "match", '
        'grader_config = { pattern = "purchase", score = "target" } }\n'
    )
    case = logs.folder / "chair"
    edit = "messages[0].content=" + json.dumps(f"{last[0]['content']} {RULE}")
    asked = [
        refork("forensics", "open", case, "--from", logs.folder / "case.toml"),
        refork(
            "forensics",
            "factorial",
            case,
            "--policy",
            f"{MADE}:planted_buyer",
            "--world",
            "none",
            "--edit",
            edit,
            "--n",
            8,
            "--set",
            "target_regex=purchase",
            "--set",
            "max_tokens=64",
            "--json",
        ),
    ]
    return (
        name,
        asked,
        pick(hits="0/arms/0/hits", runs="0/arms/0/runs", with_rule="0/arms/1/hits", of="0/arms/1/runs"),
    )


def implicit(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Log-ratios of two stand-ins on a log's turns."""
    name, policy = named(logs, "inspect-2025", "inspect"), stand(0)
    tree = logs.folder / "implicit.db"
    asked = [
        refork("tree", "import", tree, logs.files[name], "--policy", policy),
        refork("implicit", "score", "--tree", tree, "--policy", policy, "--reference", stand(1), "--json"),
    ]
    return name, asked, lambda said: {"trajectories": len(said.data)}


def simulate(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """The environment's answers in a log: what looking up the nearest turn of other tasks predicts."""
    data = logs.folder / "environment"
    asked = [
        refork("simulate", "data", logs.trees[logs.graded], "--by", "task", "--out", data, "--json"),
        refork(
            "simulate",
            "eval",
            stand(0),
            data / "test.jsonl",
            "--judge",
            "rule",
            "--baseline",
            "nearest",
            "--train",
            data / "train.jsonl",
            "--turns",
            "one",
            "--json",
        ),
    ]

    def figures(said: Said) -> dict[str, Any]:
        made, near = asked[0].data, "others/0/micro/exact"
        found = pick(turns="turns", exact=f"{near}/estimate", low=f"{near}/low", high=f"{near}/high")(said)
        return found | {"train": made["train"], "test": made["test"], "refused": len(made["refused"])}

    return logs.graded, asked, figures


def judge(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """May one cheap check of a rollout's text take the place of another, by the log's own outcomes?"""
    verdicts, anchor = logs.folder / "verdicts.jsonl", logs.folder / "anchor.jsonl"
    rows, labels = [], []
    for _, name, text, outcome in rollouts(logs):
        rows += [{"item": name, "judge": check, "value": int(ok(text))} for check, ok in CHECKS.items()]
        labels.append({"id": name, "label": int(outcome >= 1.0), "source": "ai"})
    for file, lines in ((verdicts, rows), (anchor, labels)):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    old, new = list(CHECKS)[1::-1]
    asked = [refork("judge", "gate", verdicts, "--old", old, "--new", new, "--anchor", anchor, "--json")]

    def figures(said: Said) -> dict[str, Any]:
        found = pick(old="old/accuracy/estimate", new="new/accuracy/estimate", p="difference/test/p")(said)
        return found | {
            "constant": max(sum(one["label"] == side for one in labels) for side in (0, 1)) / len(labels)
        }

    return logs.graded, asked, figures


def localize(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """The log of a repair, and a repository: the issue is part of a message."""
    name = named(logs, "swe-agent", "mini")
    asked = refork("localize", "run", ROOT / "benchmarks", "--issue", logs.files[name], "--json")
    return name, [asked], lambda said: said.data


def collapse(logs: Logs, stand: Callable[[int], str]) -> Asked:
    """Which groups teach nothing."""
    tree = logs.trees[logs.graded]
    return (
        logs.graded,
        [refork("collapse", "report", tree, "--score", logs.score, "--json")],
        pick(groups="groups", all_fail="all_fail", all_pass="all_pass", mixed="mixed", size="needed/0.9"),
    )


def outcome(method: str, logs: Logs, stand: Callable[[int], str]) -> dict[str, Any]:
    """One method: on which log, whether it ran or refused, what it said."""
    name, asked, figures = globals()[method](logs, stand)
    last = next((one for one in asked if one.status is None), asked[-1])
    told = re.sub(PATH, "", last.err) if last.status == 2 else ""
    kind = {None: "raw error", 2: "refused"}.get(last.status, "ran")
    error = re.search(r"error: (.*?)\n\s+next: (.*)", told, re.DOTALL)
    if kind == "refused" and error is None:
        kind = "refused without a way on"
    if "Traceback" in last.err or "codec can't" in last.err:
        kind = "raw error"
    found: dict[str, Any] = {
        "log": name,
        "status": kind,
        "command": [re.sub(PATH, "", one.command) for one in asked],
    }
    if kind == "ran":
        found["said"] = {
            key: float(f"{one:.4g}") if isinstance(one, float) else one for key, one in figures(last).items()
        }
    else:
        found["words"] = (
            " ".join(last.err.split())[-400:]
            if error is None
            else " ".join(f"{error[1]}; {error[2]}".split())
        )
    return found


def main() -> None:
    """Run all methods, print a line for each, and one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, default=GIVEN, help="folder of logs")
    parser.add_argument("--quick", action="store_true", help="the fixtures alone")
    parser.add_argument("--only", action="append", default=[], metavar="METHOD")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["COLUMNS"] = "160"
    found: dict[str, dict[str, Any]] = {}
    # Trees sync every commit, which is no part of what is asked here.
    with scratch(need=1 << 30) as work:
        logs = gather(Path("/nowhere") if given.quick else given.logs, work)
        made: dict[int, str] = {}

        def stand(seed: int) -> str:
            from parts.real_logs_made import stand_in

            if seed not in made:
                made[seed] = stand_in(work / f"model{seed}", seed)
            return made[seed]

        for method in given.only or METHODS:
            found[method] = outcome(method, logs, stand)
            print(f"{method:11} {found[method]['status']:8} {json.dumps(found[method])[:220]}", flush=True)
    kinds = [one["status"] for one in found.values()]
    figures = {
        "logs": logs.facts,
        "log_files": len(logs.facts),
        "graded_rollouts": logs.facts[logs.graded]["rollouts"],
        "method": found,
        "methods": len(found),
        "ran": kinds.count("ran"),
        "refused_with_reason": kinds.count("refused"),
        "raw_errors": sum(kind not in ("ran", "refused") for kind in kinds),
    }
    print(json.dumps(figures | {"quick": given.quick}))


if __name__ == "__main__":
    main()
