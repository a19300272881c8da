"""Outcomes from the SWE-bench harness: the report of a run, or the report.json of every instance."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork_methods.gate.model import VERIFY
from refork_methods.gate.records import ORACLE_ERROR, Record, completed


def read_swebench(runs: Iterable[tuple[str, Path]]) -> tuple[Record, ...]:
    """Outcomes of candidates, one named run of the harness each; join them with the critics' verdicts.

    A path is a run's summary (``MODEL.RUN.json``) or a folder that holds ``report.json`` files. Resolved
    is right, unresolved and an empty patch are wrong; an error of the harness, or a patch of which it has no
    test result, is an oracle error. (The harness does not say whether such a patch failed to apply.) An
    instance that was not submitted has no candidate and is left out.

    Raises: BadInput for a file that is neither, or an instance that is in two lists.
    """
    made: list[Record] = []
    for candidate, path in runs:
        if path.is_dir():
            files = sorted(path.rglob("report.json"))
            if not files:
                raise BadInput("this folder holds no report.json", where=str(path))
        else:
            files = [path]
        for file in files:
            made += _read(file, candidate)
    return completed(made)


def _read(path: Path, candidate: str) -> list[Record]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"this report cannot be read: {error}", where=str(path)) from error
    if isinstance(data, dict) and "resolved_ids" in data:
        return _summary(data, candidate, str(path))
    if isinstance(data, dict) and data and all(_is_instance(one) for one in data.values()):
        return [_instance(name, one, candidate) for name, one in data.items()]
    raise BadInput(
        "this is no report of the SWE-bench harness",
        where=str(path),
        hint="MODEL.RUN.json with resolved_ids and unresolved_ids, or an instance's report.json",
    )


def _summary(data: dict[str, Any], candidate: str, where: str) -> list[Record]:
    endings = {"resolved_ids": True, "unresolved_ids": False, "empty_patch_ids": False, "error_ids": None}
    if "unresolved_ids" not in data:
        raise BadInput("the report does not list unresolved_ids", where=where)
    found: dict[str, str] = {}
    for ending in endings:
        for name in data.get(ending) or ():
            if name in found:
                raise BadInput(f"{name} is in {found[name]} and in {ending}", where=where)
            found[name] = ending
    return [
        Record(
            name,
            candidate,
            endings[ending],
            {},
            missing=ORACLE_ERROR if ending == "error_ids" else None,
            empty=ending == "empty_patch_ids",
        )
        for name, ending in found.items()
    ]


def _is_instance(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("resolved"), bool)


def _instance(name: str, one: dict[str, Any], candidate: str) -> Record:
    empty = bool(one.get("patch_is_None")) or one.get("patch_exists") is False
    ran = one.get("patch_successfully_applied") is not False
    status = one.get("tests_status") or {}
    tests = frozenset(
        test for kind in ("FAIL_TO_PASS", "PASS_TO_PASS") for ended in status.get(kind, {}).values()
        for test in ended
    )  # fmt: skip
    right = one["resolved"] if ran or one["resolved"] else None
    return Record(
        name,
        candidate,
        right,
        {},
        missing=ORACLE_ERROR if right is None else None,
        tests={VERIFY: tests} if tests else {},
        empty=empty,
    )
