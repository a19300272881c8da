"""One run of a test suite, whoever reported it, and what it says of a candidate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.errors import BadInput

#: What tests that ended in an error say: nothing, or that the candidate is wrong.
OnError: TypeAlias = Literal["unknown", "fail"]


@final
@dataclass(frozen=True, slots=True)
class SuiteRun:
    """Names of the tests by how they ended; ``broken`` says why the run itself cannot be trusted."""

    passed: frozenset[str]
    failed: frozenset[str]
    errors: frozenset[str]
    skipped: frozenset[str]
    seconds: float | None = None
    broken: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """Every test that was reported."""
        return self.passed | self.failed | self.errors | self.skipped

    def verdict(self, on_error: OnError = "unknown") -> bool | None:
        """Pass where all that ran passed, fail where one failed; None where the run does not tell.

        It does not where no test ran, or none failed but one ended in an error: a fixture, a collection or
        the machine. ``on_error="fail"`` holds errors against the candidate instead.
        """
        if self.failed or (on_error == "fail" and self.errors):
            return False
        if self.broken is not None or self.errors or not self.passed:
            return None
        return True


#: How a test may end, the worst first.
ENDINGS = ("errors", "failed", "skipped", "passed")


def by_worst(
    ended: Iterable[tuple[str, str]], seconds: float | None = None, broken: str | None = None
) -> SuiteRun:
    """A run from (test, ending) pairs; a test that is there twice ended as the worse of the two."""
    worst: dict[str, int] = {}
    for name, ending in ended:
        worst[name] = min(worst.get(name, len(ENDINGS)), ENDINGS.index(ending))
    sets = {ending: frozenset(n for n, w in worst.items() if w == i) for i, ending in enumerate(ENDINGS)}
    return SuiteRun(**sets, seconds=seconds, broken=broken)


def broken_run(why: str) -> SuiteRun:
    """A run that tells nothing."""
    return by_worst((), None, why)


def parametrised(pattern: str) -> re.Pattern[str]:
    """A path pattern such as ``{instance}/{candidate}/{check}.xml`` as a regular expression.

    A name matches within one folder; ``*`` anything within one folder, ``**`` across folders.

    Raises: BadInput for an unknown name, or without ``{instance}`` and ``{check}``.
    """
    known = ("instance", "candidate", "step", "check")
    parts = re.split(r"(\{\w*\}|\*\*|\*)", pattern)
    made = ""
    for part in parts:
        name = part[1:-1]
        if part in ("*", "**"):
            made += "[^/]*" if part == "*" else ".*"
        elif part.startswith("{") and part.endswith("}"):
            if name not in known:
                raise BadInput(f"the pattern has {part}", hint="{" + "}, {".join(known) + "}")
            repeated = f"(?P<{name}>" in made
            inside = r"\d+" if name == "step" else "[^/]+"
            made += f"(?P={name})" if repeated else f"(?P<{name}>{inside})"
        else:
            made += re.escape(part)
    missing = [name for name in ("instance", "check") if f"(?P<{name}>" not in made]
    if missing:
        raise BadInput(f"the pattern lacks {{{missing[0]}}}", hint="{instance}/{candidate}/{check}.xml")
    return re.compile(made)
