"""Guards and stance annotators by name, as the command line writes them.

=============================  ==================================================================
``regex:PATTERN``              a guard: refusal where the pattern is found
``regex:COMPLY//REFUSE``       an annotator: which of two patterns a chunk holds, neither or both is 0
``python:FILE.py:NAME``        a callable of a file, or of a module (``python:package.module:NAME``)
``model:FILE.toml``            a policy asked in chat; keys ``policy``, ``template``, ``tokens`` and patterns
=============================  ==================================================================
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from refork.errors import BadInput
from refork.policies.open import open_policy
from refork.registry import resolve
from refork.types import Json
from refork_methods.stance.endpoint import EndpointAnnotator, EndpointGuard
from refork_methods.stance.guards import BatchGuard, CallGuard, Panel, RegexGuard, Tie
from refork_methods.stance.segments import Annotator, BatchAnnotator

_HINT = "regex:PATTERN, python:FILE.py:NAME or model:FILE.toml"


def open_panel(specs: list[str], tie: Tie | None = None) -> Panel:
    """A panel from the names of its guards. Raises BadInput for a name that says nothing."""
    return Panel(tuple(open_guard(spec) for spec in specs), tie)


def open_guard(spec: str) -> BatchGuard:
    """The guard that a name stands for. Raises BadInput for one that says nothing."""
    kind, rest = _parted(spec, "guard")
    if kind == "regex":
        return RegexGuard(rest)
    if kind == "python":
        return CallGuard(_callable(rest, spec), rest)
    data = _table(rest, ("policy", "template", "refuse", "comply", "tokens"))
    return EndpointGuard(open_policy(data.pop("policy")), **data)


@final
@dataclass(frozen=True, slots=True)
class PatternAnnotator:
    """+1 where only the first pattern is found in a chunk, -1 where only the second is, else 0."""

    comply: str
    refuse: str

    def __call__(self, chunk: str) -> int:
        """The stance of a chunk."""
        hits = [re.search(p, chunk, re.IGNORECASE) is not None for p in (self.comply, self.refuse)]
        return int(hits[0]) - int(hits[1])


def open_annotator(spec: str) -> Annotator | BatchAnnotator:
    """The stance annotator that a name stands for. Raises BadInput for one that says nothing."""
    kind, rest = _parted(spec, "annotator")
    if kind == "python":
        return _callable(rest, spec)
    if kind == "model":
        data = _table(rest, ("policy", "template", "refuse", "comply", "neither", "tokens"))
        return EndpointAnnotator(open_policy(data.pop("policy")), **data)
    comply, mark, refuse = rest.partition("//")
    if not (mark and comply and refuse):
        raise BadInput("a stance pattern needs two sides", where=spec, hint="regex:COMPLY//REFUSE")
    for pattern in (comply, refuse):
        RegexGuard(pattern)
    return PatternAnnotator(comply, refuse)


def _parted(spec: str, what: str) -> tuple[str, str]:
    kind, mark, rest = spec.partition(":")
    if kind not in ("regex", "python", "model") or not mark or not rest:
        raise BadInput(f"{spec!r} names no {what}", hint=_HINT)
    return kind, rest


def _callable(rest: str, spec: str) -> Callable[[str], Any]:
    if not rest.rpartition(":")[0]:
        raise BadInput(f"{spec!r} names no callable", hint=_HINT)
    call = resolve("judges", rest)
    if not callable(call):
        raise BadInput(f"{rest!r} is no callable", where=spec)
    return call  # type: ignore[no-any-return]  # what it returns is checked at every call


def _table(file: str, known: tuple[str, ...]) -> Json:
    try:
        data = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("there is no such file", where=file) from error
    except ValueError as error:
        raise BadInput(f"the file is not TOML: {error}", where=file) from error
    unknown = sorted(set(data) - set(known))
    if unknown or "policy" not in data:
        named = f"unknown key {unknown[0]!r}" if unknown else "the key 'policy' is missing"
        raise BadInput(named, where=file, hint=f"keys: {', '.join(known)}")
    return data
