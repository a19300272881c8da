"""Steps of a program on the tape: which node, agent or module made a request, and a graph's state there."""

from __future__ import annotations

import hashlib
import itertools
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from refork.agents.program_side import plain
from refork.errors import BadInput
from refork.formats.redact import Redactor
from refork.tree.tree import Tree
from refork.types import Json

#: Steps that were told and whose request has not come; more are of requests that never will.
_WAITING: Final = 1_024
#: Characters of a name in words.
_CUT: Final = 80


@final
@dataclass(frozen=True, slots=True)
class AskedBy:
    """Who made a request. ``steps``: from the outermost, with ``by``, ``kind``, ``name`` and more.

    ``state``: a graph's values when the step began, as JSON; None: it has none, or it was too large.
    """

    steps: tuple[Json, ...]
    state: Any = None


@final
class ToldSteps:
    """What programs tell of requests that are about to come."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._told: dict[str, AskedBy] = {}

    def put(self, message: Any) -> Json:
        """Keep what was told; gives the number that the request will name.

        Raises:
            BadInput: it is none.
        """
        steps = message.get("steps") if isinstance(message, dict) else None
        if not isinstance(steps, list) or not all(isinstance(one, dict) for one in steps):
            raise BadInput("tools/step is not asked so", hint="the program's refork is of another version")
        number = str(next(self._numbers))
        while len(self._told) >= _WAITING:
            self._told.pop(next(iter(self._told)))
        state = None if message.get("cut") else message.get("state")
        self._told[number] = AskedBy(tuple(map(plain, steps)), state)
        return {"id": number}

    def take(self, number: str | None) -> AskedBy | None:
        """What was told under a number; None: nothing."""
        return None if number is None else self._told.pop(number, None)


def facts_of(asked: AskedBy | None, tree: Tree, clean: Any) -> Json:
    """What the tape holds beside an exchange; ``clean`` takes secrets out of JSON."""
    if asked is None or not asked.steps:
        return {}
    redactor = Redactor()
    facts: Json = {"steps": redactor.json(clean([dict(one) for one in asked.steps]))}
    if asked.state is not None:
        text = json.dumps(redactor.json(clean(asked.state)), sort_keys=True, ensure_ascii=False)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        facts |= {"state": tree.put_blob(zlib.compress(text.encode())), "state_digest": digest}
    return facts


def state_of(tree: Tree, facts: Mapping[str, Any]) -> Any:
    """The graph's state at an exchange; None: it was not told.

    Raises:
        BadInput: it cannot be read.
    """
    if "state" not in facts:
        return None
    try:
        return json.loads(zlib.decompress(tree.blob(facts["state"])))
    except (ValueError, zlib.error) as error:
        where = f"exchange {facts.get('event')}"
        raise BadInput(
            f"its state cannot be read: {error}", where=where, hint="refork tree verify"
        ) from error


def step_words(facts: Mapping[str, Any]) -> str:
    """Who asked, in words: ``node `plan` of the graph``; empty where nobody knows."""
    return ", in ".join(_words(step) for step in reversed(facts.get("steps") or []))


def _words(step: Mapping[str, Any]) -> str:
    name, number = f"`{_short(step.get('name'))}`", step.get("step")
    if step.get("by") == "langgraph":
        path = _short(step.get("path") or "")
        return f"node {name} of the graph" + (f" ({path})" if "/" in path else "")
    if step.get("by") == "dspy":
        signature = f" for `{_short(step['signature'])}`" if step.get("signature") else ""
        return f"module `{_short(step.get('path'))}`{signature}"
    if step.get("by") == "crewai":
        return f"agent {name} at task `{_short(step.get('task'))}`"
    return f"{step.get('kind') or 'agent'} {name}" + (f", its step {number}" if number is not None else "")


def _short(name: object) -> str:
    return " ".join(str(name).replace("`", "'").split())[:_CUT]
