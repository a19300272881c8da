"""What a user would report of a failing test: the behaviour in words, never a path."""

from __future__ import annotations

import ast

from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.package import Check

#: Characters of a value that a report shows.
SHOWN = 160
#: Share of the reports that show the call; the others say it in words.
NAMED = 0.6
_WITH_CALL = (
    "Wrong result for {about}.\n\n`{call}` gives `{got}`, but it should give `{expected}`.",
    "I get a wrong answer for {about}. With `{call}` I see `{got}` where I expected `{expected}`.",
    "Unexpected behaviour: {about}.\n\nSteps: call `{call}`.\nActual: {got}\nExpected: {expected}",
    "`{call}` returned `{got}` today. That can not be right for {about}; I would say `{expected}`.",
)
_IN_WORDS = (
    "Something is off with {about}. For {given} the result is {got}, and it ought to be {expected}.",
    "We noticed a mistake in {about}: given {given}, we were told {got}. By hand we arrive at {expected}.",
    "Not what we expect for {about}. Our figures: {given}. We get: {got}. It should be: {expected}.",
    "Could someone look at {about}? It used to say {expected} for {given} and now says {got}.",
)


def issue(check: Check, reason: str, dice: Dice) -> str:
    """The report of a test that failed for ``reason``; three of five show the call."""
    named = dice.uniform() < NAMED
    text = dice.choice(_WITH_CALL if named else _IN_WORDS)
    return text.format(
        about=check.about,
        call=_short(check.call),
        given=_short(arguments_in_words(check.call)),
        got=_short(_answer(reason)),
        expected=_short(_said(check.expected)),
    )


def arguments_in_words(call: str) -> str:
    """The values that a call is given, without the names of functions and parameters."""
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:
        return "our data"
    found: list[str] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Call):
            inner = [*node.args, *(keyword.value for keyword in node.keywords)]
            pending = (
                [*inner, *pending]
                if not isinstance(node.func, ast.Attribute)
                else [node.func.value, *inner, *pending]
            )
        elif isinstance(node, ast.expr):
            try:
                found.append(repr(ast.literal_eval(node)))
            except ValueError:
                pending = [*ast.iter_child_nodes(node), *pending]
    return " and ".join(found[:4]) or "nothing in particular"


def _answer(reason: str) -> str:
    """What was seen instead, from a failed test's reason."""
    if reason.startswith("found "):
        return _said(reason.removeprefix("found "))
    if reason.startswith("LoopedError") or "it ended the process" in reason:
        return "no answer at all, it does not come to an end"
    kind, colon, _ = reason.partition(":")
    return f"an error ({kind})" if colon else "an error"


def _said(value: str) -> str:
    """A recorded answer; of an error, its kind."""
    return f"an error ({value[8:-1]})" if value.startswith("'raises ") else value


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
