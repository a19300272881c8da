"""Formats: speed, bounded memory, what survives a round trip, what leaks, and what breaks a parser.

Run: python benchmarks/formats.py [--quick]. Every reader of the package is fuzzed with changed and cut files
of its own format (hypothesis, the same inputs in every run): it may refuse an input as bad, and nothing else.
A file of JSON lines (1 GB; quick: 50 MB) is imported by the command line in a process of its own, beside one
of 5 MB: the difference of their peaks is what size costs.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from ramify.core.errors import UserError  # noqa: E402
from ramify.core.tree import Tree  # noqa: E402
from ramify.core.tree.formats import BinaryWriter, Reader, Redactor, reader_for, readers, writers  # noqa: E402
from support.secret_samples import samples  # noqa: E402
from support.told import told  # noqa: E402

FIXTURES = ROOT / "tests/core/tree/formats/fixtures"
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
CHAT = [
    {"role": "user", "content": "What is there?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "dark"},
    {"role": "assistant", "content": "It is dark."},
]
STEP = {
    "source": "agent", "message": "I look.", "tool_calls": [{"tool_call_id": "c", "function_name": "look"}],
    "observation": {"results": [{"source_call_id": "c", "content": "dark"}]}, "metrics": {"prompt_tokens": 3},
}  # fmt: skip
ATIF = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "a", "version": "1"},
    "steps": [{"source": "user", "message": "go"}, STEP],
}
ROW = {"prompt": CHAT[:1], "completion": CHAT[1:], "reward": 0.5, "task": "t", "metrics": {"m": 1.0}}
WORLD = {"prompt": ["a"], "response": ["b"], "turn_idx": 1, "system_str": "s", "task": "mcp"}
SCREEN = {"step_num": 1, "action": "x", "accessibility_tree": "<a><b name='n'/></a>"}
PAIR = {"input": {"messages": CHAT[:1]}, "preferred_output": CHAT[3:], "non_preferred_output": CHAT[3:]}
#: One file or object of each format, by the reader's name; a reader without one is fuzzed with all of them.
SEEDS: dict[str, tuple[Any, ...]] = {
    "openai-chat": ({"messages": CHAT, "metadata": {"user": 7}},),
    "verifiers": (ROW, "verifiers-traces.jsonl"),
    "atif": (ATIF, "atif.jsonl"),
    "inspect": ("inspect.eval", "inspect-killed.eval", "inspect.json.gz"),
    "agentworldbench": (WORLD,),
    "osworld": (SCREEN,),
    "openai-preference": (PAIR,),
    "art": ("art.jsonl", "art-logged.jsonl"),
    "skyrl": ("skyrl-dump.jsonl",),
    "verl": ("verl-dump.jsonl",),
    "mini-swe-agent": ("mini-tools.traj.json", "mini-text.traj.json", "mini-responses.traj.json"),
    "parquet": ("art.parquet", "trl-completions.parquet"),
    "trl": ("trl-completions.parquet",),
    "llm": ("llm-0.26.db.gz", "llm-0.36.db.gz"),
}
ODD: tuple[Any, ...] = (
    None, 0, -1, 1e308, float("nan"), "", "x", [], {}, [1], {"a": 1}, [[]], [{}], "\ud800", 10**30, 10**500,
    True, "a" * 5000,
)  # fmt: skip
#: Seconds of processor time that one input may take, and megabytes that all after the first thousand may add.
SLOW, GROWTH = 10.0, 64
#: Inputs that hypothesis draws in one go.
PART = 1000


def raw(item: Any) -> bytes:
    """The bytes of a seed: a file's (unpacked, where it was packed to be small), or an object's line."""
    if not isinstance(item, str):
        return json.dumps(item).encode() + b"\n"
    data = (FIXTURES / item).read_bytes()
    return gzip.decompress(data) if item.endswith(".gz") else data


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key in a document."""
    todo = [value]
    while todo:
        holder = todo.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], (dict, list)):
                todo.append(holder[key])


def changed_json(draw: Any, data: bytes) -> bytes | None:
    """A document or its first line with places changed to something odd; None where it is no JSON."""
    first, _, rest = data.partition(b"\n")
    try:
        body = json.loads(first)
    except ValueError:
        try:
            body, rest = json.loads(data), b""
        except ValueError:
            return None
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(body)) if isinstance(body, (dict, list)) else []
        if not found:
            break
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        if draw(st.booleans()):
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        else:
            del holder[key]
    return json.dumps(body).encode() + (b"\n" + rest if rest else b"")


@st.composite
def inputs(draw: Any, seeds: list[bytes]) -> bytes:
    """A seed with a place of its JSON changed, with bytes changed, cut, doubled; or bytes of no format."""
    data = draw(st.sampled_from(seeds))
    how = draw(st.integers(0, 9))
    if how < 5 and (made := changed_json(draw, data)) is not None:
        return made
    if how == 9:
        deep = draw(
            st.sampled_from(
                [b"[", b'{"a":', b'{"messages":[', b"\xff\xfe", b"PK\x03\x04", b"\0", b"SQLite format 3\0"]
            )
        )
        return deep * draw(st.integers(1, 3000)) + draw(st.binary(max_size=64))
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(made) - 1)))
        made[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    end = draw(st.integers(0, len(made)))
    return bytes(made[:end] if draw(st.booleans()) else made)


def fuzz(reader: Reader, count: int, folder: Path) -> tuple[int, list[str]]:
    """Read changed files; how many, and what was raised that is not a refusal, took too long, or grew."""
    names = SEEDS.get(reader.name) or tuple(one for many in SEEDS.values() for one in many)
    seeds = [raw(name) for name in names]
    file = folder / f"fuzz-{reader.name}"
    failures: list[str] = []
    done = 0

    def read(data: bytes) -> None:
        nonlocal done
        file.write_bytes(data)
        done += 1
        start = time.process_time()
        try:
            # Into a tree, for what a reader lets pass must be storable too.
            with Tree.memory() as tree:
                tree.read_file(file, reader, redactor=Redactor())
        except UserError:
            pass  # a refusal with its reason is what damage is to get
        except Exception as error:  # what a fuzzer is for
            failures.append(f"{reader.name}: {error!r}"[:300])
        if time.process_time() - start > SLOW:
            failures.append(f"{reader.name}: {time.process_time() - start:.0f} s for {len(data):,} bytes")

    before = 0.0
    # In parts, for hypothesis remembers what it tried, and memory is to be the parser's alone.
    for number in range(-(-count // PART)):
        examples = min(PART, count - number * PART)
        chosen = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        seed(number)(chosen(given(inputs(seeds))(read)))()
        before = before or peak_mb()
    if peak_mb() - before > GROWTH:
        failures.append(f"{reader.name}: memory grew by {peak_mb() - before:.0f} MB")
    return done, failures


def peak_mb() -> float:
    """Most memory that this process held, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def speed(folder: Path, count: int) -> dict[str, float]:
    """Items read into a tree per second of processor time, by format, for those whose items are lines."""
    found = {}
    for reader in readers():
        seeds = SEEDS.get(reader.name, ())
        if not seeds or (isinstance(seeds[0], str) and not seeds[0].endswith(".jsonl")):
            continue
        line = raw(seeds[0]).partition(b"\n")[0].decode()
        body = json.loads(line)
        if not isinstance(body, dict):
            continue
        file = folder / f"{reader.name}.jsonl"
        file.write_text("".join(json.dumps(body | {"row": n}) + "\n" for n in range(count)))
        start = time.process_time()
        with Tree.memory() as tree:
            tree.read_file(file, reader, redactor=Redactor())
        found[reader.name] = round(count / (time.process_time() - start), 1)
    return found


def identity(folder: Path) -> tuple[int, int]:
    """Imports, exports and imports again; how many, and how many were not the same tree."""
    failures = checks = 0
    for writer in writers():
        if isinstance(writer, BinaryWriter) or writer.name not in ("native", *SEEDS):
            continue
        for item in SEEDS.get(writer.name, (ATIF, "verifiers-traces.jsonl")):
            source, out = folder / f"identity-{checks}", folder / f"identity-{checks}.out"
            source.write_bytes(raw(item))
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
    tree.read_file(path, reader_for(path, name))
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
        tree.read_file(file, reader_for(file), redactor=Redactor())
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
from ramify.app.cli import main
sys.argv = ["ramify", "tree", "import", *sys.argv[1:], "--json"]
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
    parser.add_argument("--inputs", type=int, help="fuzzed inputs for each parser")
    parser.add_argument("--megabytes", type=float, help="size of the file that is imported")
    given_ = parser.parse_args()
    count = given_.inputs or (40 if given_.quick else 100_000)
    size = given_.megabytes or (50 if given_.quick else 1000)
    warnings.simplefilter("ignore")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="ramify-formats-") as name:
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
        total, failures = fuzzed(folder, count)
    figures |= {"fuzz_inputs": total, "fuzz_parsers": len(readers()), "fuzz_failures": len(failures)}
    for failure in failures[:20]:
        print(f"  {failure}")
    print(f"fuzzed inputs {total:,} over {len(readers())} parsers, failures {len(failures)}")
    print(json.dumps(figures | {"quick": given_.quick}))


def fuzzed(folder: Path, count: int, say: Callable[[str], None] = lambda line: None) -> tuple[int, list[str]]:
    """Fuzz every reader."""
    total, failures = 0, []
    for reader in readers():
        done, bad = fuzz(reader, count, folder)
        total += done
        failures += bad
        say(f"{reader.name}: {done:,} inputs, {len(bad)} failures")
    return total, failures


if __name__ == "__main__":
    main()
