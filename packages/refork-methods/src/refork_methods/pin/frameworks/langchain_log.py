"""langchain: every model call of an agent as a line of a log that ``refork rot audit`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final
from uuid import UUID

from refork.errors import MissingExtra
from refork.types import Json
from refork_methods.pin.frameworks.langchain_messages import from_langchain

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGeneration, LLMResult
except ImportError as error:
    raise MissingExtra("langchain-core", "harness") from error


@final
class CallLog(BaseCallbackHandler):
    """A callback that adds every model call to a file: the exact messages, and the answer.

    A summariser's calls are marked where the package says so (LangChain's and deepagents' middleware). What
    runs inside a tool, a sub-agent or a model that the tool asks, is a session of its own. Calls of other
    middleware (a choice of tools) are left out. ``config={"callbacks": [CallLog("session.jsonl")]}``
    """

    raise_error = True  # an audit of a log with holes would find losses where there are none

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._sent: dict[UUID, Json] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep what is sent until the answer comes."""
        told = metadata or {}
        source = told.get("lc_source")
        if source in (None, "summarization"):
            mark = {"by": "summariser"} if source else {}
            self._sent[run_id] = {**_session(told), "messages": from_langchain(messages[0]), **mark}

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Write the call down."""
        body = self._sent.pop(run_id, None)
        made = response.generations[0][0] if response.generations and response.generations[0] else None
        if body is not None and isinstance(made, ChatGeneration):
            body["answer"] = from_langchain([made.message])[0]
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(body, ensure_ascii=False) + "\n")

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a call that has no answer."""
        self._sent.pop(run_id, None)


def _session(metadata: Mapping[str, Any]) -> Json:
    """The session of a call inside a tool; none for the agent's own."""
    path = [
        part
        for part in str(metadata.get("langgraph_checkpoint_ns", "")).split("|")
        if part.startswith("tools:")
    ]
    if not path:
        return {}
    key = path[-1].removeprefix("tools:")[:8]
    return {"session": f"{metadata.get('lc_agent_name') or 'tool'} {key}"}
