"""Forking a machine's folder: what commands leave in forks at any depth, against the same in full copies.

Run: python benchmarks/machine_fork.py [--quick]. The folder is a git checkout of this repository. Sequences
of shell commands (edits, removals, links, modes, renames, archives, git's own) form a tree. Each fork runs
the last command of a sequence in the state that the others left; each sequence also runs whole in a full
copy. Compared are names, kinds, modes and links as the kernel lists them in the fork, and the bytes of all
files: those in the fork's layers as they lie there, all others as the folder's; of every 25th fork all bytes
as the kernel reads them in it. Then one fork, with a command in it and its removal, is timed beside one copy
as the system's `cp` makes it at its best, with neither.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from refork.agents import CommandRun, FolderMachine

ROOT = Path(__file__).resolve().parent.parent
#: Prints a digest of all that a folder holds: names, kinds, modes, links and bytes.
DIGEST = (
    "tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=posix "
    "--pax-option=delete=atime,delete=ctime,delete=mtime -cf - . | b2sum"
)
#: Lists paths, kinds, modes, and where links lead.
LIST = "find . -mindepth 1 -printf '%P\\t%y\\t%m\\t%l\\0'"
COMMANDS = (
    "sed -i 's/the/THE/' README.md docs/*.md",
    "rm -r docs/methods",
    "mkdir -p docs/methods && ls tools > docs/methods/list.txt",
    "find packages -name '*.py' -size -2k -exec chmod a-w {} +",
    "mv CHANGELOG.md OLD.md; echo new > CHANGELOG.md",
    "cp -r tools tools.copy && rm -rf tools && mv tools.copy tools",
    "ln -sfn docs/index.md start; rm -f Makefile",
    "tar -cf all.tar benchmarks && tar -tf all.tar | wc -l > count.txt",
    "for i in 1 2 3 4 5 6 7 8; do echo $i >> log.txt; mkdir -p d$i; mv log.txt d$i/; mv d$i/log.txt .; done",
    "git tag -f mark && git hash-object -w README.md > hash.txt",
    "grep -rl import tests | sort > found.txt; xargs -a found.txt cat > whole.py; rm -rf tests",
    "truncate -s 3000000 sparse; dd if=README.md of=sparse bs=1 seek=100 count=500 conv=notrunc status=none",
    "git grep -c refork | sort > counted.txt; split -l 50 counted.txt part.",
)


def sequences(count: int, seed: int) -> list[tuple[int, ...]]:
    """A tree of sequences of commands, each begun by another one or by the start; parents first."""
    rng = random.Random(seed)
    made: list[tuple[int, ...]] = [()]
    while len(made) <= count:
        new = (*rng.choice(made[-count // 2 :]), rng.randrange(len(COMMANDS)))
        if new not in made:
            made.append(new)
    return made[1:]


def copied(folder: Path, to: Path) -> float:
    """Seconds of a full copy by the system's own command."""
    began = time.perf_counter()
    subprocess.run(["cp", "-a", "--reflink=auto", folder, to], check=True)
    return time.perf_counter() - began


def listed(text: str) -> dict[str, tuple[str, ...]]:
    """Kind, mode and where it leads, by path, of what `LIST` prints."""
    rows = (row.split("\t") for row in text.split("\0") if row)
    return {path: (kind, mode, leads) for path, kind, mode, leads in rows}


def bytes_of(folder: Path) -> dict[str, str]:
    """Digest of every file of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): _digest(path.read_bytes()) for path in files}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data).hexdigest()


@dataclass(frozen=True)
class Reference:
    """What a sequence leaves in a full copy."""

    listing: dict[str, tuple[str, ...]]
    bytes: dict[str, str]
    whole: str


def in_a_copy(folder: Path, to: Path, sequence: Sequence[int]) -> Reference:
    """What a sequence leaves in a full copy."""
    copied(folder, to)
    for number in sequence:
        subprocess.run(["sh", "-c", COMMANDS[number]], cwd=to, check=False, capture_output=True)
    told = [
        subprocess.run(["sh", "-c", command], cwd=to, check=True, capture_output=True, text=True).stdout
        for command in (LIST, DIGEST)
    ]
    made = Reference(listed(told[0]), bytes_of(to), told[1])
    subprocess.run(["chmod", "-R", "u+w", to], check=True)
    shutil.rmtree(to)
    return made


def same(done: CommandRun, wanted: Reference, start: dict[str, str]) -> bool:
    """Whether a fork, whose command ended with `LIST`, holds what the copy held."""
    changes = done.state.changes()
    found = listed(done.output)
    held = {
        path: _digest(done.state.read(path)) if path in changes else start.get(path, "nothing")
        for path, (kind, *_) in found.items()
        if kind == "f"
    }
    return found == wanted.listing and held == wanted.bytes


def left_of(names: Sequence[str]) -> int:
    """Folders, mounts that any process sees, and processes of ours, of which one of these names is left."""
    found = sum(Path(name).exists() for name in names)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (process / "mountinfo").read_text() + (process / "cmdline").read_text()
            found += sum(name in text for name in names)
    with suppress(ChildProcessError):
        # A child that is there, whatever it is named.
        found += os.waitpid(-1, os.WNOHANG) == (0, 0)
    return found


def main() -> None:
    """Run and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a thousand forks in place of ten thousand")
    quick = parser.parse_args().quick
    forks, plans, rounds = (1000, 24, 11) if quick else (10_000, 200, 40)
    with tempfile.TemporaryDirectory(prefix="machine-fork-", dir="/var/tmp") as place:
        folder, copy = Path(place, "checkout"), Path(place, "copy")
        subprocess.run(
            ["git", "clone", "-q", "--no-hardlinks", "--depth", "1", ROOT.as_uri(), folder], check=True
        )
        files = sum(path.is_file() for path in folder.rglob("*"))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"a checkout of {files:,} files and {size:,} bytes")
        digest = ["sh", "-c", DIGEST]
        before = subprocess.run(digest, cwd=folder, check=True, capture_output=True, text=True).stdout
        plan = sequences(plans, 0)
        wanted = {sequence: in_a_copy(folder, copy, sequence) for sequence in plan}
        print(f"{len(wanted)} sequences of up to {max(map(len, plan))} commands, each in a full copy")
        start = bytes_of(folder)
        divergences, times, copies, removals = 0, [], [], []
        machine = FolderMachine(folder)
        scratch = machine.scratch
        with machine:
            states = {(): machine.start}
            for number in range(forks):
                sequence = plan[number % len(plan)]
                command = f"({COMMANDS[sequence[-1]]}) >/dev/null 2>&1; {LIST}"
                done = states[sequence[:-1]].run(["sh", "-c", command])
                states[sequence] = done.state
                good = same(done, wanted[sequence], start)
                if number % 25 == 0:
                    good = good and done.state.run(digest).output == wanted[sequence].whole
                divergences += not good
            for number in range(rounds):
                copies.append(copied(folder, copy))
                began = time.perf_counter()
                shutil.rmtree(copy)
                removals.append(time.perf_counter() - began)
                state = states[plan[number % len(plan)]]
                began = time.perf_counter()
                state.run(["true"])
                times.append(time.perf_counter() - began)
            divergences += machine.start.run(digest).output != before
            del states, state, done
        after = subprocess.run(digest, cwd=folder, check=True, capture_output=True, text=True).stdout
        divergences += after != before
        left = left_of([scratch])
    fork, full = statistics.median(times), statistics.median(copies)
    print(f"a fork {fork * 1e3:.1f} ms with a command in it, a copy {full * 1e3:.0f} ms without")
    print(
        json.dumps(
            {
                "forks": forks,
                "divergences": divergences,
                "left_behind": left,
                "speedup_over_copy": round(full / fork, 1),
                "speedup_over_copy_and_removal": round((full + statistics.median(removals)) / fork, 1),
                "fork_ms": round(fork * 1e3, 2),
                "copy_ms": round(full * 1e3, 1),
                "files": files,
                "bytes": size,
                "sequences": len(wanted),
                "deepest": max(map(len, plan)),
            }
        )
    )


if __name__ == "__main__":
    main()
