"""Any chat model as an agent of the apps: the prompt, what a memory gives, and one call a turn."""

from __future__ import annotations

from collections.abc import Sequence

from refork.chat import ChatModel
from refork.errors import ServerError
from refork.types import Message
from refork_testbed.worlds.miniapps.advice import Text
from refork_testbed.worlds.miniapps.agents import Run, Turn
from refork_testbed.worlds.miniapps.scenarios import query_of
from refork_testbed.worlds.miniapps.world import MiniAppsEpisode, ToolLike

_HEADS = {
    "plan": "Plans that may serve:",
    "fact": "What is known of the apps:",
    "pitfall": "Mistakes to avoid:",
}


def system_text(texts: Sequence[Text], tools: Sequence[ToolLike]) -> str:
    """What a memory adds to the prompt: texts by kind, and the tools that can be called; "" for nothing."""
    parts: list[str] = []
    for kind, head in _HEADS.items():
        told = [f"- {text.body}" for text in texts if text.kind == kind]
        parts += [head, *told] if told else []
    if tools:
        parts.append("Tools that do a whole procedure in one turn, called as tools.name(name=value):")
        for tool in tools:
            known = tool.parameters.get("properties", {})
            given = ", ".join(f"{key}: {one.get('type', 'any')}" for key, one in known.items())
            parts.append(f"- tools.{tool.name}({given}): {tool.doc}")
    return "\n".join(parts)


def play_chat(
    model: ChatModel, episode: MiniAppsEpisode, *, texts: Sequence[Text] = (), draw: int = 0
) -> Run:
    """Let a chat model act in an episode to its end; the tools are those of the episode's world.

    A model that gives no answer ends the run with reward 0 and its error in ``info``.
    """
    prompt = episode.task.prompt
    memory = system_text(texts, episode.tools)
    messages: list[Message] = [{"role": "system", "content": memory}] if memory else []
    messages.append({"role": "user", "content": prompt})
    turns: list[Turn] = []
    while True:
        try:
            said = model.reply(messages, draw=draw).text
        except ServerError as error:
            return Run(query_of(prompt), tuple(turns), 0.0, {"ending": "error", "error": str(error)})
        seen = episode.step(said)
        turns.append(Turn(said, tuple(seen.info.get("calls", ())), seen.text))
        if seen.done:
            return Run(query_of(prompt), tuple(turns), float(seen.reward or 0.0), dict(seen.info))
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": seen.text}]
