"""Calls of tools that a tape does not have, answered by a model that has read the calls that it has."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final, final

from refork.policies.remote.endpoint import Endpoint
from refork.types import Json

#: Characters of recorded calls that the model is shown, the latest ones first to stay.
_SHOWN: Final = 24_000
_ASK: Final = (
    "You stand in for the tool {name} of a program that is run again. Below are calls of it as they were "
    "recorded, each with its result, then a new call. Answer with the new call's result and nothing else: "
    "{form}, consistent with the recorded results. Where the call cannot succeed, answer as the tool would."
)


@final
class ToolSimulator:
    """A model behind an OpenAI-compatible server in the place of tools; use as a context.

    ``to``: its address with ``/v1``; None: what OPENAI_BASE_URL says, else OpenAI's own.

    Raises:
        BadInput: it is no address.
    """

    def __init__(self, model: str, to: str | None = None) -> None:
        base = to or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        self._endpoint = Endpoint(base, model, api_key=os.environ.get("OPENAI_API_KEY"))

    def __enter__(self) -> ToolSimulator:
        return self

    def __exit__(self, *_: object) -> None:
        self._endpoint.close()

    def result(self, call: Json, known: Sequence[tuple[Any, Any]]) -> Any:
        """The result, of the form that recorded results have; None where there is none to go by.

        Raises: ServerError, where the server does not answer.
        """
        if not known:
            return None
        form = next((one for _, one in known if one is not None), None)
        told = (
            "as plain text" if isinstance(form, str) else "as JSON of the same form as the recorded results"
        )
        rows: list[str] = []
        for arguments, result in reversed(known):
            row = (
                f"call: {_json(arguments)}\nresult: {result if isinstance(result, str) else _json(result)}\n"
            )
            if rows and sum(map(len, rows)) + len(row) > _SHOWN:
                break
            rows.append(row)
        messages = [
            {"role": "system", "content": _ASK.format(name=call["name"], form=told)},
            {
                "role": "user",
                "content": "\n".join([*reversed(rows), f"call: {_json(call['arguments'])}\nresult:"]),
            },
        ]
        answer = self._endpoint.chat({"messages": messages}, "the result of a tool")
        said = str(answer["choices"][0]["message"].get("content") or "").strip()
        if isinstance(form, str):
            return said
        try:
            made = json.loads(said.removeprefix("```json").removeprefix("```").removesuffix("```"))
        except ValueError:
            return None
        return made if _alike(made, form) else None


def _alike(made: Any, form: Any) -> bool:
    """Whether a value has the kind and, of an object, the names of a recorded one."""
    if isinstance(form, dict):
        return isinstance(made, dict) and made.keys() == form.keys()
    number = (int, float)
    return isinstance(made, number if isinstance(form, number) else type(form))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
