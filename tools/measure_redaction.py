"""Measure redaction on the test corpus of detect-secrets, and on logs, where every find is looked at by hand.

Run: python tools/measure_redaction.py detect-secrets/ [--logs FOLDER]

The first folder is its source, which has the tests (https://github.com/Yelp/detect-secrets). They are read,
and nothing of them is kept here. A case is a text with what its rule must find in it, or a text in which that
rule must find nothing; another rule may still. Entropy rules are left out. Prints what both together miss and
take, and one line of JSON.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "packages/refork/src"))

#: Tests of rules that are not about a text's secrets.
NO_CASES = {"base_test", "high_entropy_strings_test", "ip_public_test"}
TEXTS = ("payload", "line", "file_content")
#: What stands for a secret in its tests: a row of one letter is taken by us for a placeholder.
STAND_IN = "xxxx"

Case = tuple[str, str, str | bool]


def cases(corpus: Path) -> list[Case]:
    """(rule, text, what must be found: the value, or whether anything) of each test of a rule, once."""
    sys.path.insert(0, str(corpus))
    sys.modules.setdefault("responses", MagicMock())  # for tests that ask a server, which are not run
    found: dict[tuple[str, str], str | bool] = {}
    for file in sorted((corpus / "tests/plugins").glob("*_test.py")):
        if file.stem in NO_CASES:
            continue
        module = importlib.import_module(f"tests.plugins.{file.stem}")
        for rows in _tables(module):
            for row in rows:
                text = next((row[name] for name in TEXTS if isinstance(row.get(name), str)), None)
                if text is None:
                    continue
                wanted = row.get("should_flag", row.get("expected_secret", True))
                known = found.get((file.stem, text))
                # A text may be tested as several kinds of file: one that finds makes it a case to find.
                found[file.stem, text] = known or (wanted if isinstance(wanted, str) else bool(wanted))
    return [(rule.removesuffix("_test"), text, wanted) for (rule, text), wanted in found.items()]


def _tables(module: Any) -> Iterator[list[dict[str, Any]]]:
    kinds = [kind for name, kind in inspect.getmembers(module, inspect.isclass) if name.startswith("Test")]
    for place in (module, *kinds):
        for _, test in inspect.getmembers(place, inspect.isfunction):
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "parametrize":
                    names = mark.args[0]
                    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
                    rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
                    yield [dict(zip(names, row, strict=True)) for row in rows]


def finders() -> dict[str, Callable[[str], str]]:
    """Texts without what our shapes, detect-secrets alone, and both take out."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    from refork.formats import redact

    plugins = [
        kind()
        for kind in get_mapping_from_secret_type_to_class().values()
        if "Entropy" not in kind.__name__ and kind.__name__ != "IPPublicDetector"
    ]

    def theirs(text: str) -> str:
        lines = text.splitlines() or [text]
        values = {value for line in lines for plugin in plugins for value in plugin.analyze_string(line)}
        for value in sorted(filter(None, values), key=len, reverse=True):
            text = text.replace(value, "[redacted:]")
        return text

    def ours(text: str) -> str:
        with (
            patch.object(redact, "by_form", lambda text: ()),
            patch.object(redact, "by_name", lambda text: ()),
        ):
            return redact.Redactor().text(text)

    return {"shapes": ours, "detect_secrets": theirs, "both": lambda text: redact.Redactor().text(text)}


def on_corpus(known: list[Case], find: Callable[[str], str]) -> dict[str, Any]:
    """Counts, and the cases that are missed."""
    missed, taken = [], []
    for rule, text, wanted in known:
        made = find(text)
        hit = made != text and not (isinstance(wanted, str) and wanted in made)
        if wanted and not hit:
            missed.append((rule, text))
        if not wanted and made != text:
            taken.append((rule, text))
    return {"missed": missed, "taken": taken}


def texts_of(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, text) of every text in a folder's JSON files, packed ones too."""
    for file in sorted(folder.rglob("*")):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as packed:
                bodies = [packed.read(name) for name in packed.namelist() if name.endswith(".json")]
        elif file.suffix in (".json", ".traj"):
            bodies = [file.read_bytes()]
        else:
            continue
        for body in bodies:
            for text in _strings(json.loads(body)):
                yield file.name, text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def main() -> None:
    """Print tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path, help="the source of detect-secrets")
    parser.add_argument("--logs", type=Path, help="a folder of logs, to see what is taken there")
    asked = parser.parse_args()
    known = cases(asked.corpus)
    figures: dict[str, Any] = {
        "to_find": sum(bool(wanted) for *_, wanted in known),
        "stand_ins": sum(bool(wanted) and STAND_IN in text for _, text, wanted in known),
        "to_leave": sum(not wanted for *_, wanted in known),
    }
    kinds = finders()
    for name, find in kinds.items():
        found = on_corpus(known, find)
        figures[name] = {what: len(rows) for what, rows in found.items()}
        figures[name]["stand_ins_missed"] = sum(STAND_IN in text for _, text in found["missed"])
        for what, rows in found.items():
            for rule, text in rows if name == "both" else ():
                print(f"{what:7} {rule:18} {text[:100]!r}")
    if asked.logs is not None:
        texts = list(texts_of(asked.logs))
        size = sum(len(text.encode()) for _, text in texts)
        figures["log_bytes"] = size
        for name, find in kinds.items():
            find("password = 'warm-up-1'")
            began, taken = time.process_time(), Counter[str]()
            for file, text in texts:
                if find(text) != text:
                    taken[file] += 1
                    print(f"{name} takes from {file}: {text[:120]!r}")
            figures[name] |= {
                "taken_from_logs": sum(taken.values()),
                "mb_per_s": round(size / 1e6 / (time.process_time() - began), 2),
            }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
