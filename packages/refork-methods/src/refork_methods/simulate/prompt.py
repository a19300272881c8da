"""How a language model is asked what an environment will answer, and how its answer is written.

The environment is the assistant: the brief is the system message, an action the user's, an observation the
assistant's, inside a tag. Reasoning may stand before the tag; it is never part of the context of later turns.
An observation that itself holds such a tag is written with a backslash in it; extraction takes it out again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from refork.types import Message
from refork.worlds.environment import Brief, Seen

TAG = "prediction"
THINK = "think"


@lru_cache(maxsize=16)
def _marks(tag: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Tags that must not stand in a text as they are, and tags that were escaped."""
    names = f"(/?(?:{re.escape(tag)}|{THINK})>)"
    return re.compile(rf"<(\\*){names}"), re.compile(rf"<\\(\\*){names}")


def escaped(text: str, tag: str = TAG) -> str:
    """The text with one backslash more, after its ``<``, in each tag of ours that it holds."""
    return _marks(tag)[0].sub(r"<\\\1\2", text) if "<" in text else text


def unescaped(text: str, tag: str = TAG) -> str:
    """Inverse of :func:`escaped`, for every text."""
    return _marks(tag)[1].sub(r"<\1\2", text) if "<" in text else text


def answer(observation: str, note: str | None = None, tag: str = TAG) -> str:
    """What a simulator says: the note as its reasoning, if there is one, then the observation in its tag."""
    thought = f"<{THINK}>{escaped(note, tag)}</{THINK}>" if note else ""
    return f"{thought}<{tag}>{escaped(observation, tag)}</{tag}>"


def messages(
    brief: Brief, seen: Sequence[Seen], action: str | None = None, instruction: str = "", tag: str = TAG
) -> list[Message]:
    """The chat in which the answer to ``action`` is due (None: the chat so far).

    ``instruction`` is a control's, added to the brief.
    """
    system = "\n\n".join(part for part in (brief.text, instruction) if part)
    chat: list[Message] = [{"role": "system", "content": system}] if system else []
    for done, observation in seen:
        chat.append({"role": "user", "content": done})
        chat.append({"role": "assistant", "content": answer(observation, tag=tag)})
    if action is not None:
        chat.append({"role": "user", "content": action})
    return chat
