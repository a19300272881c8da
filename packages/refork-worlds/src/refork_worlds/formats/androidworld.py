"""AndroidWorld: the ``TASK_N.pkl.gz`` files of a run, one or a folder of them.

A file holds a list of episodes, each with its goal, ``is_successful`` and ``episode_data``: lists with one
entry a step. The T3A agent records the elements of the screen before and after each step; of M3A they are
read from its prompts. The screen after an action is the one before the next, for that is what the next
index counts in.

Source: arXiv 2405.14573 and its released code (``checkpointer.py``, ``suite_utils.py``, ``agents/t3a.py``).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head, shaped
from refork.tree.records import Record
from refork.types import Json
from refork_worlds.formats.pickled import fields, number, unpickled
from refork_worlds.formats.screen_trajectories import ScreenStep, drafts
from refork_worlds.screens.device import DONE, NOT_DONE
from refork_worlds.screens.elements import Element, line

_BEFORE: Final = ("before_element_list", "before_ui_elements", "ui_elements")
_AFTER: Final = ("after_element_list", "after_ui_elements")
_STATES: Final = ("clickable", "long_clickable", "editable", "scrollable", "selected", "checked", "focused")
_LISTED: Final = re.compile(r"^UI element (\d+): (\{.*\})$", re.MULTILINE)
_AFTER_MARK: Final = "after screenshot"
_KEPT: Final = ("task_template", "instance_id", "agent_name", "seed", "exception_info")
_GZIP: Final = b"\x1f\x8b\x08"


@final
class AndroidWorld:
    """Reads the result files of AndroidWorld's runs, without AndroidWorld."""

    name = "androidworld"
    order = 95

    def sniff(self, head: Head) -> bool:
        """Whether the file is gzipped: the other formats are plain text."""
        return head.data.startswith(_GZIP)

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts of every episode that was not cut off by an error of the harness.

        Raises:
            BadInput: another kind of file, or screens that were not recorded; it names the episode.
        """
        body = unpickled(path)
        if (
            isinstance(body, tuple) and body
        ):  # the older checkpoints: episodes and the names of finished tasks
            body = body[0]
        if not isinstance(body, list):
            raise BadInput("this pickle is not a list of episodes", where=str(path))
        for index, episode in enumerate(body, start=1):
            where = f"{path}, episode {index}"
            if not isinstance(episode, dict) or "goal" not in episode:
                raise BadInput("an episode has a goal and episode_data", where=where)
            data = fields(episode.get("episode_data"))
            if data:
                yield from shaped(_episode(episode, data, where), where, "AndroidWorld")


def _episode(episode: Json, data: Json, where: str) -> Iterator[Record]:
    steps = max((len(rows) for rows in data.values() if isinstance(rows, list)), default=0)
    before = [_screen(data, step, _BEFORE, "action_prompt") for step in range(steps)]
    after = [_screen(data, step, _AFTER, "summary_prompt") for step in range(steps)]
    if steps and all(screen is None for screen in (*before, *after)):
        raise BadInput(
            "no step of this episode has its screen as text: only screenshots were recorded",
            where=where,
            hint="record before_element_list and after_element_list in the agent's step data, as T3A does",
        )
    won = number(episode.get("is_successful"))
    turns = []
    for step in range(steps):
        action, reasons = _action_and_reasons(data, step)
        screen = before[step + 1] if step + 1 < steps else None
        screen = after[step] if screen is None else screen
        if screen is None and step + 1 == steps and won is not None and '"status"' in action:
            # The end of a task shows no screen: its answer is the grader's.
            screen = DONE if won >= 1.0 else NOT_DONE
        if screen is None and step + 1 < steps:
            raise BadInput(f"step {step + 1} has no screen after it", where=where, hint="was the log cut?")
        turns.append(ScreenStep(action, reasons, screen))
    more = {key: episode[key] for key in _KEPT if isinstance(episode.get(key), (str, int, float))}
    first = before[0] if before and before[0] is not None else ""
    goal = str(episode["goal"])
    yield from drafts(
        source="androidworld", domain="phone", goal=goal, first=first, turns=turns, reward=won, more=more
    )


def _entry(data: Json, key: str, step: int) -> Any:
    rows = data.get(key)
    return rows[step] if isinstance(rows, list) and step < len(rows) else None


def _screen(data: Json, step: int, keys: Sequence[str], prompt: str) -> str | None:
    """The screen of a step as lines of elements, from its list or from the agent's prompt."""
    for key in keys:
        listed = _entry(data, key, step)
        if isinstance(listed, list):
            return "\n".join(_lines((index, fields(one) or {}) for index, one in enumerate(listed)))
    asked = _entry(data, prompt, step)
    if not isinstance(asked, str):
        return None
    if prompt == "summary_prompt":
        # This prompt shows two screens; the later one stands behind the mark.
        asked = asked.rpartition(_AFTER_MARK)[2]
    found = [(int(index), _dictionary(body)) for index, body in _LISTED.findall(asked)]
    return "\n".join(_lines(found)) if found else None


def _dictionary(text: str) -> Json:
    # Elements are printed as Python writes dictionaries, which is no JSON.
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return {"text": text}
    return found if isinstance(found, dict) else {"text": text}


def _lines(elements: Any) -> Iterator[str]:
    """One line for each element that is visible; the index counts all of them, as an action's does."""
    for index, one in elements:
        if one.get("is_visible") is False:
            continue
        kind = str(one.get("class_name") or ("EditText" if one.get("is_editable") else "View"))
        named = (
            ("text", one.get("text")),
            ("desc", one.get("content_description")),
            ("hint", one.get("hint_text")),
        )
        states = [name.replace("_", "-") for name in _STATES if one.get(f"is_{name}") is True]
        states += ["disabled"] if one.get("is_enabled") is False else []
        texts = tuple((name, str(value)) for name, value in named if value)
        yield line(Element(kind.rpartition(".")[2], texts, tuple(states)), index)


def _action_and_reasons(data: Json, step: int) -> tuple[str, str]:
    """The action as JSON, and the reasons that stood before it."""
    text = str(_entry(data, "action_output", step) or "")
    reasons, _, action = text.rpartition("Action:")
    reasons = reasons.strip().removeprefix("Reason:").strip()
    for key in ("action_output_json", "action"):
        given = fields(_entry(data, key, step))
        if given and "action_type" in given:
            return json.dumps({k: v for k, v in given.items() if v is not None}), reasons
    start, end = action.find("{"), action.rfind("}")
    try:
        return json.dumps(json.loads(action[start : end + 1]), ensure_ascii=False), reasons
    except ValueError:
        return action.strip(), reasons
