"""ATIF, the trajectory format of Harbor and Terminal-Bench: one JSON object, or one a line.

System and user steps are messages; an agent step is an action with its reasoning apart, and the results of
its observation follow it, each with the call that it answers (or with none, where the agent acts by text).
Embedded subagents are trajectories of their own. Steps that were copied from an earlier trajectory are what
the agent was shown here, and no action of it.

Source: the ATIF specification, versions 1.0 to 1.7 (Harbor, ``0001-trajectory-format.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import amount_of, check_results, count_of, mapping, origin, tool_call
from refork.formats.log_reader import LogReader
from refork.policies.base import Cost
from refork.tree.records import Record, Remark
from refork.types import Json, Message

_MARK: Final = "ATIF-v1"
#: What an agent's step says that stands with its action.
_TOLD: Final = ("model_name", "timestamp", "reasoning_effort", "metrics", "extra", "llm_call_count")


@final
class ATIF(LogReader):
    """Reads ATIF; token ids are recorded where a policy is given to tokenise with.

    The ids and log-probabilities that a step's metrics may hold stay in ``extra``: they include a prompt that
    the agent's harness may have rendered anew.
    """

    name, label = "atif", "ATIF"
    order = 75

    def sniff(self, head: Head) -> bool:
        """Whether the file names an ATIF version of 1."""
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and '"schema_version"' in start and f'"{_MARK}' in start

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write records as :class:`.atif_export.ATIFWriter` does; returns how many lines."""
        from refork.formats.atif_export import ATIFWriter

        return ATIFWriter().write(records, out)

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """One trajectory and its subagents."""
        for number, (place, one) in enumerate(_with_subagents(body, where)):
            yield from self._trajectory(one, f"atif/{name}/{number}", place)

    def _trajectory(self, body: Json, line: str, where: str) -> Iterator[Record]:
        version, steps = body.get("schema_version"), body.get("steps")
        if not isinstance(version, str) or not version.startswith(_MARK):
            raise BadInput(f"the version is {version!r}, not {_MARK}.x", where=where)
        if not isinstance(steps, list) or not steps:
            raise BadInput("the trajectory has no steps", where=where)
        messages: list[Message] = []
        told: list[Json] = []
        copied: set[int] = set()
        kept: list[Json] = []
        for number, step in enumerate(steps, start=1):
            place = f"{where}, step {number}"
            made = _messages(step, place)
            kept.append(_rest_of(step, len(made)))
            if step.get("is_copied_context"):
                # The place of the step's first message: its others are results, which are shown anyway.
                copied.add(len(messages))
            elif made[0]["role"] == "assistant":
                told.append(_turn_facts(step))
                yield from _uneven(step, place)
            messages += made
        check_results(messages, where)
        if copied:
            what = "steps copied from an earlier trajectory: they are context here, not nodes"
            yield Remark("lost", what, where, len(copied))
        agent = dict(body.get("agent") or {})
        tools = agent.pop("tool_definitions", None)
        rest = {k: v for k, v in body.items() if k not in ("steps", "agent", "subagent_trajectories")}
        rest |= {"agent": agent, "steps": kept} | ({"tools": tools} if tools else {})
        model = next((one["policy"] for one in told if "policy" in one), agent.get("model_name"))
        came = origin("atif", model, agent=agent.get("name"), version=agent.get("version"))
        yield from self._chat.drafts(
            messages, rest, line, where, facts=told, copied=copied, apart=True, origin=came
        )


def _rest_of(step: Mapping[str, Any], messages: int) -> Json:
    """How a step is put together again: how many messages it became, and what no node says of it."""
    told = step["source"] == "agent" and not step.get("is_copied_context")
    said = ("message", "reasoning_content", "tool_calls", "observation", *(_TOLD if told else ()))
    return {key: value for key, value in step.items() if key not in said} | {"messages": messages}


def _uneven(step: Mapping[str, Any], where: str) -> Iterator[Remark]:
    """Say of token ids and log-probs that they are kept as they were given, and where they do not fit."""
    metrics = step.get("metrics")
    if not isinstance(metrics, Mapping):
        return
    ids, logprobs = metrics.get("completion_token_ids"), metrics.get("logprobs")
    if isinstance(ids, list) and isinstance(logprobs, list) and len(ids) != len(logprobs):
        yield Remark("lost", "log-probs that are not one for each token; they stand under extra", where)


def _with_subagents(body: Json, where: str) -> Iterator[tuple[str, Json]]:
    yield where, body
    for number, one in enumerate(body.get("subagent_trajectories") or [], start=1):
        if not isinstance(one, dict):
            raise BadInput(f"subagent {number} is not an object", where=where)
        yield from _with_subagents(one, f"{where}, subagent {number}")


def _messages(step: Any, where: str) -> list[Message]:
    """A step as messages: what was said, then what was seen."""
    if not isinstance(step, Mapping):
        raise BadInput("a step is not an object", where=where)
    source = step.get("source")
    roles = {"system": "system", "user": "user", "agent": "assistant"}
    if source not in roles:
        raise BadInput(f"the source is {source!r}", where=where, hint="sources: system, user, agent")
    message: Message = {"role": roles[source], "content": _content(step.get("message"), where)}
    if source != "agent" and step.get("tool_calls"):
        raise BadInput(f"a {source} step has tool calls", where=where)
    if source == "agent":
        if step.get("tool_calls"):
            message["tool_calls"] = [_call(call, where) for call in step["tool_calls"]]
        if step.get("reasoning_content"):
            message["reasoning_content"] = str(step["reasoning_content"])
    return [message, *_paired(list(_results(step, where)), message)]


def _paired(results: list[Message], message: Message) -> list[Message]:
    """Results that name no call, given to the calls of their step.

    As many as calls are theirs in order; a single one answers all calls together (``answers`` says how many),
    as a terminal does that shows its screen after a batch of keystrokes.
    """
    calls = message.get("tool_calls") or []
    if not calls or not results or any(result["role"] == "tool" for result in results):
        return results
    if len(results) == len(calls):
        return [
            {**result, "role": "tool", **({"tool_call_id": call["id"]} if "id" in call else {})}
            for call, result in zip(calls, results, strict=True)
        ]
    if len(results) == 1:
        return [{**results[0], "role": "tool", "answers": len(calls)}]
    return results


def _call(raw: Any, where: str) -> Json:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("function_name"), str):
        raise BadInput("a tool call has no function_name", where=where)
    call = raw.get("tool_call_id")
    made = tool_call(raw["function_name"], raw.get("arguments"), None if call is None else str(call))
    return made | ({"extra": raw["extra"]} if raw.get("extra") else {})


def _results(step: Mapping[str, Any], where: str) -> Iterator[Message]:
    observation = step.get("observation")
    if observation is None:
        return
    results = observation.get("results") if isinstance(observation, Mapping) else None
    if not isinstance(results, list):
        raise BadInput("an observation has no results", where=where)
    for result in results:
        if not isinstance(result, Mapping):
            raise BadInput("a result is not an object", where=where)
        content = _content(result.get("content"), where)
        refs = result.get("subagent_trajectory_ref")
        call = result.get("source_call_id")
        message: Message = {"role": "user" if call is None else "tool", "content": content}
        message |= {} if call is None else {"tool_call_id": str(call)}
        message |= {"subagent_trajectory_ref": refs} if refs else {}
        message |= {"extra": result["extra"]} if result.get("extra") else {}
        yield message


def _content(raw: Any, where: str) -> str | list[Json]:
    """A text, or OpenAI's parts: images by their path."""
    if raw is None or isinstance(raw, str):
        return raw or ""
    if not isinstance(raw, list) or not all(isinstance(part, Mapping) for part in raw):
        raise BadInput("a content is neither text nor parts", where=where)
    parts: list[Json] = []
    for part in raw:
        if part.get("type") == "image":
            source = part.get("source") or {}
            link: Json = {"url": str(source.get("path", ""))}
            link |= {"media_type": source["media_type"]} if source.get("media_type") else {}
            parts.append({"type": "image_url", "image_url": link})
        else:
            parts.append({"type": "text", "text": str(part.get("text", ""))})
    return parts


def _turn_facts(step: Mapping[str, Any]) -> Json:
    """What a step says of itself beside its text: model, costs, and the rest in ``extra``."""
    metrics = step.get("metrics")
    kept = {name: step[name] for name in _TOLD[1:] if step.get(name) is not None}
    told: Json = {
        "cost": Cost(
            tokens_in=count_of(metrics, "prompt_tokens"),
            tokens_out=count_of(metrics, "completion_tokens"),
            money=amount_of(mapping(metrics).get("cost_usd")),
        ),
        "extra": {"step": kept} if kept else {},
    }
    return told | ({"policy": str(step["model_name"])} if step.get("model_name") else {})
