"""Asking a chat model for strict JSON: one answer, one retry with what was wrong, then a clear error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from refork.chat import ChatModel
from refork.errors import BadInput, ServerError
from refork.policies.base import Cost
from refork.types import Message
from refork_methods.memory.events import added

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)


class StrictReply(BaseModel):
    """A reply of which every field is known and of its type."""

    model_config = ConfigDict(extra="forbid", strict=True)


R = TypeVar("R", bound=StrictReply)


def ask(
    model: ChatModel,
    role: str,
    messages: Sequence[Message],
    shape: type[R],
    check: Callable[[R], None] = lambda _: None,
) -> tuple[R, Cost]:
    """The model's reply in the given shape, and the cost of all it took.

    ``check`` raises BadInput for what the shape cannot say; the model is told and asked once more.

    Raises:
        ServerError: no usable reply in two.
    """
    asked = list(messages)
    costs: list[Cost] = []
    wrong = ""
    for draw in range(2):
        reply = model.reply(asked, draw=draw)
        costs.append(reply.cost)
        try:
            found = shape.model_validate_json(_bare(reply.text))
            check(found)
        except ValidationError as error:
            first = error.errors()[0]
            wrong = f"{'.'.join(map(str, first['loc'])) or 'the reply'}: {first['msg']}"
        except BadInput as error:
            wrong = error.what
        else:
            return found, added(*costs)
        asked += [
            {"role": "assistant", "content": reply.text},
            {"role": "user", "content": f"That cannot be used: {wrong}. Reply with the JSON object alone."},
        ]
    raise ServerError(
        f"the {role} gave no usable reply in two: {wrong}",
        where=model.name,
        hint="try another model, or the roles by rule, which need none",
    )


def _bare(text: str) -> str:
    """The reply without a code fence around it."""
    found = _FENCE.match(text.strip())
    return found.group(1) if found else text.strip()


def told(system: str, **parts: object) -> list[Message]:
    """A system message and one user message whose parts are JSON, one headed block each."""
    blocks = [
        f"{name}:\n{part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, indent=1)}"
        for name, part in parts.items()
    ]
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(blocks)}]
