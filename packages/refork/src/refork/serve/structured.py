"""Answers of a form that the request asks for: calls of tools, JSON of a schema, as the grammar of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar, final

from refork.errors import BadInput, CannotDo
from refork.policies.call_form import CallForm, arguments_schema, turn_grammar
from refork.sampling.grammar import Grammar
from refork.sampling.guide import check_grammar
from refork.serve.asking import tokens_of
from refork.serve.refusal import BadParameter
from refork.serve.served import Served
from refork.types import Json

T = TypeVar("T")
Mode: TypeAlias = Literal["none", "auto", "required"]


@final
@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must be.

    ``tools`` are the functions that may be called, with their numbers in the request; with ``mode``
    ``required`` one must be, and with ``many`` more may be. ``answer`` is the schema of what is said
    otherwise, None: any text. ``tool_at`` (of a tool's number) and ``answer_at`` are where a request has
    them, for complaints.
    """

    mode: Mode
    tools: tuple[tuple[int, Json], ...]
    many: bool
    answer: Json | None
    tool_at: Callable[[int], str]
    answer_at: str

    async def held(self, model: Served) -> tuple[Grammar | None, CallForm | None]:
        """The grammar of the turn and the form of its calls; None where any text will do.

        Raises: BadParameter naming what of it cannot be had.
        """
        called = bool(self.tools) and self.mode == "required"
        if not called and self.answer is None:
            return None, None
        # A large schema takes its time, and others are being answered meanwhile.
        return await asyncio.to_thread(self._held, model, called)

    def _held(self, model: Served, called: bool) -> tuple[Grammar, CallForm | None]:
        answer = None if called else self.answer
        if answer is not None:
            tokens_of(model, "way to be held to a schema", self.answer_at)
            _have(self.answer_at, lambda: check_grammar(Grammar.json_schema(answer)))
        if not self.tools or self.mode == "none":
            return turn_grammar(None, answer=answer), None
        speaker = tokens_of(model, "way to be made to call a tool", "tool_choice")
        form = _have("tool_choice", speaker.call_form)
        for number, tool in self.tools:
            _have(self.tool_at(number), partial(_check, tool))
        functions = [tool for _, tool in self.tools]
        return turn_grammar(form, functions, answer=answer, many=self.many), form


def allowed(
    functions: Sequence[Json], choice: object, mode: Mode, named: Sequence[str] | None
) -> tuple[tuple[int, Json], ...]:
    """The functions that a request's ``tool_choice`` lets be called, with their numbers; only ``named`` ones.

    Raises: BadParameter for a choice that is none of the tools.
    """
    if choice not in (None, "none", "auto") and not functions:
        raise BadParameter("tool_choice", "tool_choice: there are no tools")
    # Refused also where mode is auto: a name that is not offered is a slip of the client.
    known = {function["name"] for function in functions}
    for name in named or ():
        if name not in known:
            raise BadParameter("tool_choice", f"tool_choice: {name!r} is none of the tools"[:200])
    return tuple(
        (number, function)
        for number, function in enumerate(functions)
        if mode != "none" and (named is None or function["name"] in named)
    )


def _check(tool: Json) -> None:
    check_grammar(Grammar.json_schema(arguments_schema(tool)))


def _have(param: str, do: Callable[[], T]) -> T:
    """What a function gives; what is wrong with it is said of a field of the request."""
    try:
        return do()
    except (BadInput, CannotDo) as error:
        raise BadParameter(param, f"{param}: {error.what}", hint=error.hint) from error
