"""Real bugs of known Python projects: who finds the files and functions of the fix without a model.

``localize_bugs.json`` lists them by project: issues by their SWE-bench id, other fixes by their commit, split
by project into those that settings were chosen on (``dev``) and those that were scored once at the end
(``sealed``). Neither issues nor code are kept here. To rebuild the set, clone the projects into one folder
(``owner/name``, ``owner__name`` or ``name``; bare clones will do) and put SWE-bench's rows beside them as
``swe-bench.jsonl``, for example with the datasets package::

    load_dataset("princeton-nlp/SWE-bench", split="test+dev").to_json("CLONES/swe-bench.jsonl")

Run it by hand: ``PYTHONPATH=benchmarks python -m parts.localize_bugs CLONES --split dev``. With
``--keep FILE`` every bug's score is added to a file as it comes, and a later run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from refork.errors import UserError
from refork_methods.localize.bugs import (
    Bug,
    BugScore,
    bug_of_commit,
    bugs_json,
    find_clone,
    read_bugs,
    score_bug,
)

LISTED = Path(__file__).with_name("localize_bugs.json")
ROWS = "swe-bench.jsonl"


def listed(split: str) -> dict[str, dict[str, list[str]]]:
    """``issues`` and ``messages`` of a split: project -> ids."""
    told: dict[str, dict[str, list[str]]] = json.loads(LISTED.read_text())[split]
    return told


def gather(clones: Path, split: str) -> tuple[list[Bug], dict[str, str]]:
    """The bugs of a split that a folder of clones gives, and why others are not there."""
    ids = listed(split)
    found: list[Bug] = []
    missing: dict[str, str] = {}
    rows = {bug.name: bug for bug in read_bugs(clones / ROWS)} if (clones / ROWS).is_file() else {}
    for names in ids["issues"].values():
        for name in names:
            if name in rows:
                found.append(rows[name])
            else:
                missing[name] = f"no such row in {ROWS}"
    for repo, commits in ids["messages"].items():
        for commit in commits:
            try:
                found.append(bug_of_commit(find_clone(clones, repo), repo, commit))
            except UserError as error:
                missing[f"{repo} {commit}"] = error.what
    return found, missing


def scored(
    clones: Path, split: str, keep: Path | None = None
) -> tuple[list[tuple[BugScore, ...]], dict[str, str]]:
    """Of each bug of a split its score, plain and masked; and why some bugs have none.

    ``keep``: a file of scores of an earlier run, which are taken, and to which new ones are added.
    """
    bugs, skipped = gather(clones, split)
    known = read_scores(keep) if keep is not None and keep.is_file() else {}
    scores: list[tuple[BugScore, ...]] = []
    for bug in bugs:
        try:
            pair = known.get(bug.name)
            if pair is None:
                pair = score_bug(find_clone(clones, bug.repo), bug, (False, True))
                if keep is not None:
                    with keep.open("a") as file:
                        file.write(json.dumps([one.to_json() for one in pair]) + "\n")
            scores.append(pair)
        except UserError as error:
            skipped[bug.name] = error.what
        print(f"\r{len(scores)} of {len(bugs)} scored", end="", file=sys.stderr, flush=True)
    return scores, skipped


def read_scores(file: Path) -> dict[str, tuple[BugScore, ...]]:
    """Scores of an earlier run by bug."""
    pairs = [tuple(BugScore.from_json(row) for row in json.loads(line)) for line in file.open()]
    return {pair[0].bug: pair for pair in pairs}


def figures(clones: Path | None, keep: Path | None = None) -> dict[str, Any]:
    """The sealed bugs' figures; without clones none, and why. ``keep`` as for ``scored``."""
    keys = (
        "real_bugs",
        "real_lead_file",
        "real_lead_file_low",
        "real_lead_function",
        "real_lead_function_low",
    )
    why = "no folder of clones was given (--clones or REFORK_CLONES)"
    if clones is not None:
        pairs, skipped = scored(clones, "sealed", keep)
        plain, masked = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if len(plain) > 1:
            told = {"real": bugs_json(plain, skipped), "real_masked": bugs_json(masked, skipped)}
            out: dict[str, Any] = {"real_bugs": len(plain), "real_why": None}
            for name, row in told.items():
                print(f"{len(plain)} real bugs{', names masked' if name != 'real' else ''}")
                print_rates(row)
                for level, key, k in (
                    ("file", "files", 1),
                    ("file_five", "files", 5),
                    ("function", "functions", 1),
                    ("function_five", "functions", 5),
                ):
                    ahead = row["leads"][f"{key} bm25 @{k}"]
                    best = row["leads"][f"{key} bm25 best @{k}"]
                    out |= {
                        f"{name}_lead_{level}": round(ahead["mean"], 4),
                        f"{name}_lead_{level}_low": round(ahead["low"], 4),
                        f"{name}_lead_{level}_best": round(best["mean"], 4),
                        f"{name}_lead_{level}_best_low": round(best["low"], 4),
                        f"{name}_{level}": round(row["arms"][f"{key} investigator @{k}"]["mean"], 4),
                        f"{name}_{level}_bm25": round(row["arms"][f"{key} bm25 @{k}"]["mean"], 4),
                    }
            return out
        why = next(iter(skipped.values()), "no bug is listed")
    print(f"real bugs were not scored: {why}")
    return {**dict.fromkeys(keys), "real_why": why}


def print_rates(told: dict[str, Any]) -> None:
    """Rates and leads as a table."""
    for key, row in told["arms"].items():
        ahead = told["leads"].get(key)
        more = (
            ""
            if ahead is None
            else f"   investigator {ahead['mean']:+.3f} [{ahead['low']:+.3f}, {ahead['high']:+.3f}]"
        )
        print(f"  {key:30s} {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}] {row['bugs']:4d}{more}")


def main() -> None:
    """Score a split, plain and masked; the figures are the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path, help="the folder of clones")
    parser.add_argument("--split", choices=("dev", "sealed"), default="dev")
    parser.add_argument("--write", type=Path, help="write the rebuilt set here as rows of SWE-bench's fields")
    parser.add_argument("--keep", type=Path, help="keep every bug's score here, and go on from those kept")
    args = parser.parse_args()
    if args.write is not None:
        bugs, missing = gather(args.clones, args.split)
        args.write.write_text("".join(json.dumps(bug.to_json()) + "\n" for bug in bugs))
        print(json.dumps({"bugs": len(bugs), "missing": len(missing)}))
        return
    started = time.monotonic()
    pairs, skipped = scored(args.clones, args.split, args.keep)
    out: dict[str, Any] = {}
    for turn, name in enumerate(("plain", "masked")):
        for source in (None, "issue", "message"):
            part = [pair[turn] for pair in pairs if source in (None, pair[turn].source)]
            if len(part) > 1:
                row = bugs_json(part, skipped)
                print(f"{args.split}, {name}, from {source or 'either source'}: {len(part)} bugs")
                print_rates(row)
                out[f"{name} {source or 'all'}"] = {key: row[key] for key in ("bugs", "arms", "leads")}
    print(f"{len(skipped)} left out; {time.monotonic() - started:.0f} s")
    print(json.dumps(out))


if __name__ == "__main__":
    main()
