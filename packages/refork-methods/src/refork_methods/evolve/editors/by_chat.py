"""A chat model as the editor: it is shown a workspace and its scores, and answers with whole files."""

from __future__ import annotations

import json
import re
from typing import Final, final

from pydantic import BaseModel, ConfigDict, ValidationError

from refork.chat import ChatModel
from refork.errors import BadInput, ServerError
from refork.thoughts import without_thoughts
from refork.types import Message
from refork_methods.evolve.editors.editor_view import EditorView
from refork_methods.evolve.editors.edits import EditResult
from refork_methods.evolve.editors.folder import check_path

SYSTEM: Final = """You improve a small directory of prompts or code. You are shown its files, and how often it
and its forerunners passed in each of their roles. Make one change that should raise those shares honestly; a
change that only pleases a judge is found out and undone. Answer with one JSON object alone:
{"why": "one sentence", "write": {"path": "the whole new text of that file"}, "delete": ["path"]}
Paths are relative and lie in the directory. Files that you do not name stay as they are."""

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", re.DOTALL)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    why: str = ""
    write: dict[str, str] = {}
    delete: list[str] = []


@final
class ChatDrafter:
    """Asks a chat model for a change; an answer that cannot be used is told what is wrong with it.

    ``retries``: how many more answers are asked for. Without a usable one the draft is refused, with the
    reason; that is no error.
    """

    def __init__(self, model: ChatModel, *, retries: int = 1, brief: str = "") -> None:
        if retries < 0:
            raise BadInput(f"retries is {retries}; it must be 0 or more", where="chat editor")
        self._model, self._retries, self._brief = model, retries, brief

    @property
    def name(self) -> str:
        """The model's."""
        return f"chat:{self._model.name}"

    def draft(self, view: EditorView, step: int) -> EditResult:
        """The files with the model's changes.

        Raises: ServerError where the model never answered: a run that stops can be resumed, and a server
            that is down is no judgement on an edit.
        """
        messages: list[Message] = [
            {"role": "system", "content": SYSTEM + (f"\n\n{self._brief}" if self._brief else "")},
            {"role": "user", "content": question(view)},
        ]
        wrong, silent = "", None
        for attempt in range(1 + self._retries):
            try:
                # A number of its own for every attempt: after a silence the messages are the same.
                text = self._model.reply(messages, draw=step * (1 + self._retries) + attempt).text
            except ServerError as error:
                silent = error
                continue
            silent = None
            try:
                return _changed(view.files, text)
            except BadInput as error:
                wrong = error.what
            messages += [
                {"role": "assistant", "content": text},
                {
                    "role": "user",
                    "content": f"That cannot be used: {wrong}. Answer with the JSON object alone.",
                },
            ]
        if silent is not None and not wrong:
            raise silent
        return EditResult(None, refused=f"no usable answer: {wrong}")


def question(view: EditorView) -> str:
    """All that the model is told, but for the system's words."""
    return json.dumps({"files": view.files, **view.to_json()}, ensure_ascii=False, indent=1)


def _changed(files: dict[str, str], text: str) -> EditResult:
    bare = without_thoughts(text)
    found = _FENCE.match(bare)
    try:
        answer = _Answer.model_validate_json(found.group(1) if found else bare)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the answer"
        raise BadInput(f"{place}: {first['msg']}") from error
    for path in (*answer.write, *answer.delete):
        check_path(path)
    missing = sorted(set(answer.delete) - files.keys())
    if missing:
        raise BadInput(f"there is no file {missing[0]!r} to delete")
    kept = {path: body for path, body in files.items() if path not in answer.delete}
    return EditResult(kept | answer.write, " ".join(answer.why.split())[:500])
