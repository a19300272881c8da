"""Rule checks of a predicted observation: what must hold whatever the wording, decided without a judge.

A rule is a pure function of the prediction and of its target; None where it does not apply to the target. The
rules of each domain are a table: take some, or write your own.

Source: arXiv 2606.24597 names executable checks as a tenth of the reward, and not which; these are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from refork_methods.simulate.prompt import Target
from refork_methods.simulate.reward import same_shape

#: Whether a prediction keeps a rule; None: the rule does not apply to this target.
Rule: TypeAlias = Callable[[str, Target], bool | None]

_COUNT = re.compile(r"\b(\d+) (passed|failed|errors?|skipped|results?|rows?|items?|files?|matches)\b")
_FAILURE = re.compile(
    r"\berror\b|\bfatal\b|traceback|no such file|not found|permission denied|invalid|cannot|unknown|denied",
    re.IGNORECASE,
)
_EXIT = re.compile(r"(?:^|\n)\[?(?:exit(?: code| status)?)[: ]\s*(\d+)\]?", re.IGNORECASE)
_CASE = re.compile(r"(?:^|\n)(PASS(?:ED)?|FAIL(?:ED)?|OK)\b")
_INDENT = re.compile(r"^[ \t]*(\S*)", re.MULTILINE)


def _parsed(text: str) -> Any:
    """The JSON of a text that is an object or a list; None for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def json_valid(prediction: str, target: Target) -> bool | None:
    """JSON where the truth is JSON."""
    return None if _parsed(target.truth) is None else _parsed(prediction) is not None


def json_shape(prediction: str, target: Target) -> bool | None:
    """The keys and types of the truth, where it is JSON."""
    truth = _parsed(target.truth)
    return None if truth is None else same_shape(_parsed(prediction), truth)


def counts(prediction: str, target: Target) -> bool | None:
    """The same counts (``3 passed``, ``2 results``), where the truth has some."""
    truth = _COUNT.findall(target.truth)
    # In any order: which count a tool tells first is wording.
    return None if not truth else sorted(_COUNT.findall(prediction)) == sorted(truth)


def exit_code(prediction: str, target: Target) -> bool | None:
    """The same exit status, where the truth names one."""
    truth = _EXIT.findall(target.truth)
    return None if not truth else _EXIT.findall(prediction) == truth


def outcome(prediction: str, target: Target) -> bool:
    """An error where the truth is one, and none where it is none."""
    return bool(_FAILURE.search(prediction)) == bool(_FAILURE.search(target.truth))


def silence(prediction: str, target: Target) -> bool | None:
    """Nothing where the truth says nothing, and something where it says something."""
    return (not prediction.strip()) == (not target.truth.strip())


def verdicts(prediction: str, target: Target) -> bool | None:
    """The same tests passed and failed in the same order, where the truth has such lines."""
    truth = _CASE.findall(target.truth)
    return None if not truth else _CASE.findall(prediction) == truth


def lines(prediction: str, target: Target) -> bool | None:
    """As many lines as the truth, where that has several."""
    count = len(target.truth.strip().splitlines())
    return None if count < 2 else len(prediction.strip().splitlines()) == count


def roles(prediction: str, target: Target) -> bool | None:
    """The first words of the lines of the truth, as often: the roles of a screen's elements."""
    if len(target.truth.strip().splitlines()) < 2:
        return None
    return sorted(_INDENT.findall(prediction.strip())) == sorted(_INDENT.findall(target.truth.strip()))


_SHELL: tuple[Rule, ...] = (silence, outcome, exit_code)
_SCREEN: tuple[Rule, ...] = (silence, json_valid, lines, roles)

#: The rules of each domain; ``other`` for what is in none.
RULES: Mapping[str, tuple[Rule, ...]] = {
    "terminal": (*_SHELL, lines),
    "swe": (*_SHELL, counts, verdicts),
    "search": (silence, outcome, json_valid, counts, lines),
    "tools": (silence, outcome, json_valid, json_shape),
    "phone": _SCREEN,
    "web": _SCREEN,
    "desktop": _SCREEN,
    "other": (silence, json_valid, json_shape),
}


def check(prediction: str | None, target: Target) -> float | None:
    """1.0 where every rule of the target's domain that applies is kept, else 0.0; None where none applies.

    No prediction keeps no rule.
    """
    mine = RULES.get(target.domain, RULES["other"])
    if prediction is None:
        return 0.0 if any(rule("", target) is not None for rule in mine) else None
    found = [kept for rule in mine if (kept := rule(prediction, target)) is not None]
    return float(all(found)) if found else None
