"""The scientist that is a chat model: it is told all that a view holds, and answers with one JSON object.

What it writes is checked field by field, and asked for again with what was wrong; what stays wrong is a
:class:`Fault`. Its theories and statistics run in the sandbox alone. Words of the prompts are ours.

Source: arXiv:2606.26448 for the roles; one model in all of them, the ``done`` answer in place of a critic
model, and strict answers are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, final

from refork.chat import ChatModel
from refork.errors import UserError
from refork.types import Json, Message
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.chat_answers import read_design, read_revision, read_verdict
from refork_methods.theory.search.chat_words import (
    DESIGN,
    REVISION,
    SYSTEM,
    VERDICT,
    design_question,
    revision_question,
    verdict_question,
)
from refork_methods.theory.search.scientist import Candidate, Fault, Proposed, Revised, Ruled, View

T = TypeVar("T")
#: Times that an answer is asked for before a role has failed.
ASKED: Final = 3
_FENCE: Final = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


@final
class ChatScientist:
    """All three roles by one chat model.

    A model that gives no answer (ServerError) ends the run where it is; ``resume`` asks again.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._said: list[Json] = []

    @property
    def name(self) -> str:
        """The model's."""
        return f"chat:{self._model.name}"

    def said(self) -> list[Json]:
        """Questions and answers since the last call."""
        told, self._said = self._said, []
        return told

    def propose(self, view: View, side: int, refused: Sequence[str]) -> Proposed:
        """An experiment with statistics; a fault where no answer fits."""
        return self._ask(
            DESIGN, design_question(view, side, refused), view, lambda body: read_design(body, view)
        )

    def judge(self, view: View) -> Ruled:
        """A verdict; a fault where no answer fits."""
        return self._ask(VERDICT, verdict_question(view), view, read_verdict)

    def revise(self, view: View, verdict: Verdict, tried: Sequence[Candidate]) -> Revised:
        """A theory as YAML; None where the model is done, a fault where no answer fits."""
        may_end = any(one.accepted for one in tried)
        return self._ask(
            REVISION,
            revision_question(view, verdict, tried),
            view,
            lambda body: read_revision(body, view, verdict, may_end=may_end),
        )

    def _ask(self, role: str, question: str, view: View, read: Callable[[Json], T]) -> T | Fault:
        messages: list[Message] = [
            {"role": "system", "content": f"{SYSTEM}\n\n{role}"},
            {"role": "user", "content": question},
        ]
        why = ""
        for attempt in range(ASKED):
            reply = self._model.reply(messages, draw=_draw(view.key, attempt))
            text = reply.text.encode("utf-8", "replace").decode()
            # A copy: the list goes on to grow.
            self._said.append({"messages": [dict(one) for one in messages], "reply": text})
            try:
                return read(one_object(text))
            except UserError as error:
                why = str(error)
            cut = " The answer was cut off." if reply.finish == "length" else ""
            messages += [
                {"role": "assistant", "content": text},
                {
                    "role": "user",
                    "content": f"This cannot be used: {why}.{cut} Answer again, with JSON alone.",
                },
            ]
        return Fault(f"no usable answer in {ASKED}: {why}")


def one_object(text: str) -> Json:
    """The one JSON object of an answer: the last fenced block, else the whole text.

    Raises: BadInput for no JSON, or no object.
    """
    from refork.errors import BadInput

    blocks = [body for language, body in _FENCE.findall(text) if language.lower() in ("", "json")]
    try:
        found: Any = json.loads(blocks[-1] if blocks else text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the answer is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput("the answer is no JSON object")
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _draw(key: tuple[int, int, int, int], attempt: int) -> int:
    seed, number, side, place = key
    return (((seed * 1009 + number) * 3 + side) * 1009 + place) * ASKED + attempt
