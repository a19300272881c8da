"""Formats: speed, bounded memory, what survives a round trip, what leaks, and what breaks a parser.

Run: python benchmarks/formats.py [--quick]. Every reader of the package is fuzzed with changed and cut files
of its own format (``tools/fuzz_formats.py``, the same inputs in every run): it may refuse an input as bad,
and nothing else. A file of JSON lines (1 GB; quick: 50 MB) is imported by the command line in a process of
its own, beside one of 5 MB: the difference of their peaks is what size costs.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import fuzz_formats  # noqa: E402
from refork.formats import Redactor, import_file, is_binary, reader_for, readers, writers  # noqa: E402
from refork.tree import Tree  # noqa: E402
from support.fuzz_seeds import seeds_of  # noqa: E402
from support.secret_samples import samples  # noqa: E402
from support.told import told  # noqa: E402

#: Formats of text that are written, whose good files go around.
AROUND = ("native", "openai-chat", "verifiers", "atif")


def speed(folder: Path, count: int) -> dict[str, float]:
    """Items read into a tree per second of processor time, by format, for those whose items are lines."""
    found = {}
    for reader in readers():
        if not hasattr(reader, "item") and reader.name != "osworld":
            continue
        line = next(seed for seed in seeds_of(reader.name) if seed.startswith(b"{")).partition(b"\n")[0]
        body = json.loads(line)
        file = folder / f"{reader.name}.jsonl"
        file.write_text("".join(json.dumps(body | {"row": n}) + "\n" for n in range(count)))
        start = time.process_time()
        with Tree.memory() as tree:
            import_file(tree, file, reader, redactor=Redactor())
        found[reader.name] = round(count / (time.process_time() - start), 1)
    return found


def identity(folder: Path) -> tuple[int, int]:
    """Imports, exports and imports again; how many, and how many were not the same tree."""
    failures = checks = 0
    for writer in writers():
        if is_binary(writer) or writer.name not in AROUND:
            continue
        for item in seeds_of(writer.name):
            source, out = folder / f"identity-{checks}", folder / f"identity-{checks}.out"
            source.write_bytes(item)
            before = loaded(source)
            with io.StringIO() as text:
                writer.write(before.records(), text)
                out.write_text(text.getvalue(), encoding="utf-8")
            name = writer.name if any(writer.name == reader.name for reader in readers()) else None
            checks += 1
            failures += told(loaded(out, name)) != told(before)
    return checks, failures


def loaded(path: Path, name: str | None = None) -> Tree:
    """A tree of a file."""
    tree = Tree.memory()
    import_file(tree, path, reader_for(path, name))
    return tree


def leaks(folder: Path, seeds: range) -> tuple[int, int]:
    """Secrets in a chat log that is imported; how many there were, and how many the tree's file holds."""
    hidden = [one for number in seeds for one in samples(number)]
    file, place = folder / "secrets.jsonl", folder / "secrets.db"
    with file.open("w") as out:
        for one in hidden:
            turns = [{"role": "user", "content": "show me"}, {"role": "assistant", "content": one.text}]
            print(json.dumps({"messages": turns, "log": {"out": one.text}}), file=out)
    with Tree.open(place) as tree:
        import_file(tree, file, reader_for(file), redactor=Redactor())
        told_of = "\n".join(json.dumps([n.text, n.message, n.extra], ensure_ascii=False) for n in tree.walk())
    stored = place.read_bytes() + b"".join(part.read_bytes() for part in folder.glob("secrets.db-*"))
    return len(hidden), sum(one.secret in told_of or one.secret.encode() in stored for one in hidden)


def chats(file: Path, megabytes: float) -> int:
    """Write chats of nine turns in made-up words until a file is so large; how many."""
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghijklmnop", k=dice.randint(2, 9))) for _ in range(5000)]
    count = written = 0
    with file.open("w") as out:
        while written < megabytes * 1e6:
            turns = [{"role": "user", "content": " ".join(dice.choices(words, k=40))}]
            for _ in range(4):
                turns.append({"role": "assistant", "content": " ".join(dice.choices(words, k=60))})
                turns.append({"role": "user", "content": " ".join(dice.choices(words, k=30))})
            written += out.write(json.dumps({"messages": turns[:-1], "id": count}) + "\n")
            count += 1
    return count


MEASURED = """
import resource, sys
from refork.cli import main
sys.argv = ["refork", "tree", "import", *sys.argv[1:], "--json"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def importing(folder: Path, megabytes: float) -> tuple[float, float, int]:
    """Import a file by the command line: megabytes per second, peak megabytes of memory, nodes."""
    file, tree = folder / f"{megabytes:g}.jsonl", folder / f"{megabytes:g}.db"
    chats(file, megabytes)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tree), str(file)], capture_output=True, text=True, check=True
    )
    seconds = time.perf_counter() - start
    said, _, peak = done.stdout.rstrip().rpartition("\n")
    for old in (file, *folder.glob(f"{tree.name}*")):
        old.unlink()
    return megabytes / seconds, int(peak) / 1024, int(json.loads(said)["nodes"])


def main() -> None:
    """Measure, print a table, and one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 MB, 40 inputs for each parser")
    parser.add_argument(
        "--fuzz",
        type=Path,
        default=ROOT / "build/fuzz",
        help="folder of tools/fuzz_formats.py, which goes on there",
    )
    parser.add_argument("--inputs", type=int, help="fuzzed inputs for each parser")
    parser.add_argument("--megabytes", type=float, help="size of the file that is imported")
    given_ = parser.parse_args()
    count = given_.inputs or (40 if given_.quick else 100_000)
    size = given_.megabytes or (50 if given_.quick else 1000)
    warnings.simplefilter("ignore")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="refork-formats-") as name:
        folder = Path(name)
        small = importing(folder, 5)
        rate, peak, nodes = importing(folder, size)
        figures |= {"import_mb": size, "import_mb_per_s": round(rate, 2), "import_nodes": nodes}
        figures |= {"import_peak_mb": round(peak, 1), "import_growth_mb": round(peak - small[1], 1)}
        print(f"{size:,.0f} MB of chats: {rate:.1f} MB/s, peak {peak:,.0f} MB ({peak - small[1]:+,.0f})")
        figures["rows_per_s"] = speed(folder, 100 if given_.quick else 2000)
        for form, per_second in figures["rows_per_s"].items():
            print(f"  {form:20} {per_second:>9,.0f} items/s")
        figures["identity_checks"], figures["identity_failures"] = identity(folder)
        figures["secrets"], figures["secrets_leaked"] = leaks(folder, range(3 if given_.quick else 50))
        print(f"round trips {figures['identity_checks']}, not the same {figures['identity_failures']}")
        print(f"secrets {figures['secrets']:,}, leaked {figures['secrets_leaked']}")
        total, failures = fuzzed(folder if count < fuzz_formats.BLOCK else given_.fuzz, count)
    figures |= {"fuzz_inputs": total, "fuzz_parsers": len(readers()), "fuzz_failures": len(failures)}
    for failure in failures[:20]:
        print(f"  {failure}")
    print(f"fuzzed inputs {total:,} over {len(readers())} parsers, failures {len(failures)}")
    print(json.dumps(figures | {"quick": given_.quick}))


def fuzzed(folder: Path, count: int) -> tuple[int, list[str]]:
    """Fuzz every reader, a few inputs here, many in watched processes; how many, and failures."""
    if count < fuzz_formats.BLOCK:
        states = [fuzz_formats.fuzz_here(reader.name, count, folder) for reader in readers()]
        bad = [f"{state.parser}: {one['where']}: {one['what']}" for state in states for one in state.failures]
        return sum(state.done for state in states), bad
    tool = [sys.executable, str(ROOT / "tools/fuzz_formats.py")]
    done = subprocess.run(
        [*tool, "--inputs", str(count), "--folder", str(folder)], capture_output=True, text=True, check=False
    )
    told_of = done.stdout.splitlines()
    figures = json.loads(told_of[-1])
    bad = [line.strip() for line in told_of if line.startswith(" ")]
    return figures["fuzz_inputs"], bad or ["failed"] * figures["fuzz_failures"]


if __name__ == "__main__":
    main()
