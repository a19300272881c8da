"""Trajectories of SWE-agent (``.traj``): before 1.0, 1.0 with ``messages`` and from 1.1 on with ``query``.

The history of the agent is the conversation; state, times and queries of each step are kept with its action.
Other agents of a run (subroutines before 1.0) and the attempts of a retrying agent are trajectories of their
own. A file without a history is read from its steps.

Source: ``agents.py`` and ``types.py`` of SWE-agent 0.0.1 and 1.1, and its documentation of output files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.base import Head
from refork.formats.conversation import graded, mapping, origin
from refork.formats.log_reader import LogReader
from refork.json_guard import parse_json
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json, Message

_STEP: Final = ("state", "execution_time", "extra_info")
#: What a step repeats of the history, or of the query before it.
_REPEATED: Final = ("action", "observation", "response", "thought", "query", "messages", *_STEP)


@final
class SWEAgent(LogReader):
    """Reads SWE-agent's trajectories; token ids are recorded where a policy is given to tokenise with."""

    name, label = "swe-agent", "SWE-agent"
    order = 30

    def sniff(self, head: Head) -> bool:
        """Whether the file is an object with the steps or attempts of SWE-agent."""
        start = head.text.lstrip()
        if not start.startswith("{"):
            return False
        if head.name.endswith(".traj") and '"trajectory"' in start:
            return True
        steps = '"trajectory"' in start and '"thought"' in start and '"observation"' in start
        return steps and ('"response"' in start or '"history"' in start)

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """One trajectory: its agents, or its attempts."""
        attempts = body.get("attempts")
        if isinstance(attempts, list) and attempts:
            for number, attempt in enumerate(attempts):
                place = f"{where}, attempt {number}"
                yield from self._attempt(attempt, f"swe-agent/{name}/{number}", place, {"attempt": number})
            return
        yield from self._attempt(body, f"swe-agent/{name}", where, {})

    def _attempt(self, body: Any, line: str, where: str, told: Json) -> Iterator[Record]:
        if not isinstance(body, Mapping) or not isinstance(body.get("trajectory"), list):
            raise BadInput("there is no trajectory", where=where)
        steps = [step for step in body["trajectory"] if isinstance(step, Mapping)]
        if len(steps) < len(body["trajectory"]):
            skipped = len(body["trajectory"]) - len(steps)
            yield Remark("skipped", "a step that is no object", where, skipped)
        rest = {key: value for key, value in body.items() if key not in ("trajectory", "history")} | told
        timed = any(step.get("execution_time") for step in steps)
        lost = "token ids and log-probs" if timed else "token ids, log-probs and times"
        yield Remark("lost", f"{lost}: the file has none", where)
        agents = _by_agent(body.get("history"), where) or {"": _from_steps(steps)}
        main = next(iter(agents))
        for number, (agent, messages) in enumerate(agents.items()):
            if not messages:
                raise BadInput("there are no messages", where=where)
            own = rest | ({"agent": agent} if agent else {})
            turns = sum(message["role"] == "assistant" and not _demo(message) for message in messages)
            fits = agent == main and turns == len(steps)
            if agent == main and steps and not fits:
                yield Remark(
                    "lost", "times and states of steps: the history has another number of turns", where
                )
                own |= {"steps": [_rest_of(step) for step in steps]}
            if agent != main:
                own = {"agent": agent}
            made = origin(
                "swe-agent",
                _model(body),
                version=mapping(body.get("info")).get("swe_agent_version"),
                agent=agent,
            )
            spoken = _turn_facts(messages, steps, body) if fits else ()
            new_nodes = self._chat.drafts(messages, own, f"{line}/{number}", where, facts=spoken, origin=made)
            # The review and the exit are the main agent's: the others had ended before.
            if agent == main:
                yield from graded(new_nodes, _producer(body), _scores(body), _error(body))
            else:
                yield from new_nodes


def _by_agent(history: Any, where: str) -> dict[str, list[Message]]:
    """The messages of each agent in order, the first that speaks first."""
    if not isinstance(history, list):
        return {}
    found: dict[str, list[Message]] = {}
    for number, item in enumerate(history, start=1):
        message = _message(item, f"{where}, message {number}")
        found.setdefault(str(item.get("agent") or ""), []).append(message)
    return found


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, Mapping):
        raise BadInput("a message is not an object", where=where)
    raw = dict(item)
    ids = raw.pop("tool_call_ids", None)
    if raw.get("role") == "tool" and isinstance(ids, list) and len(ids) == 1:
        raw["tool_call_id"] = ids[0]
    elif ids:
        raw["tool_call_ids"] = ids
    return whole_message(raw, where)


def _demo(message: Message) -> bool:
    return bool(message.get("is_demo"))


def _from_steps(steps: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The conversation of steps: what the first was asked, then responses and observations in turn."""
    if not steps:
        return []
    asked = steps[0].get("query") or steps[0].get("messages") or []
    messages = [_message(one, "the first step's query") for one in asked]
    for step in steps:
        said: Message = {"role": "assistant", "content": str(step.get("response") or "")}
        said |= {key: step[key] for key in ("thought", "action") if step.get(key)}
        messages += [said, {"role": "user", "content": str(step.get("observation") or "")}]
    return messages


def _turn_facts(
    messages: Sequence[Message], steps: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
) -> list[Json]:
    """What the steps say of the turns of the agent; nothing of those of a demonstration."""
    waiting = iter(steps)
    model = _model(body)
    told: list[Json] = []
    for number, message in enumerate(messages, start=1):
        if message["role"] != "assistant":
            continue
        step = None if _demo(message) else next(waiting, None)
        if step is None:
            told.append({})
            continue
        extra = _rest_of(step)
        # What the last command printed was never shown to the agent, so the history lacks it.
        extra |= (
            {"observation": step["observation"]}
            if number == len(messages) and step.get("observation")
            else {}
        )
        told.append({"extra": {"step": extra} if extra else {}} | ({"policy": model} if model else {}))
    return told


def _model(body: Mapping[str, Any]) -> str | None:
    """The model's name, from the configuration to run the agent again that newer files hold as a text."""
    try:
        replay = parse_json(str(body.get("replay_config")).encode(), "")
        name = replay["agent"]["model"]["name"]
    except (BadInput, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _rest_of(step: Mapping[str, Any]) -> Json:
    """A step without what the history has: its state, times and unknown keys, and the query's length."""
    kept = {key: value for key, value in step.items() if key not in _REPEATED}
    kept |= {key: step[key] for key in _STEP if step.get(key) not in (None, {}, "")}
    query = step.get("query") or step.get("messages")
    return kept | ({"query_messages": len(query)} if isinstance(query, list) else {})


def _producer(body: Mapping[str, Any]) -> Producer:
    version = mapping(body.get("info")).get("swe_agent_version")
    return Producer("swe-agent", str(version) if version else "0")


def _scores(body: Mapping[str, Any]) -> Json:
    """The review of a retrying agent, where one was made."""
    return {"review": mapping(mapping(body.get("info")).get("review")).get("accept")}


def _error(body: Mapping[str, Any]) -> str | None:
    """An exit that was no submission."""
    status = mapping(body.get("info")).get("exit_status")
    if not isinstance(status, str) or status.startswith("submitted"):
        return None
    return f"exit: {status}"
