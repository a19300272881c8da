"""Any chat model of ours as AutoGen's model client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, final

from refork.chat import ChatModel, Reply
from refork.compaction import Counter, approximate_tokens
from refork.errors import BadInput, MissingExtra
from refork.types import Json, Message
from refork_methods.pin.frameworks.autogen_messages import from_autogen
from refork_methods.pin.frameworks.turns import calls_of

try:
    from autogen_core import CancellationToken, FunctionCall
    from autogen_core.models import (
        ChatCompletionClient,
        CreateResult,
        LLMMessage,
        ModelFamily,
        ModelInfo,
        RequestUsage,
    )
    from autogen_core.tools import Tool, ToolSchema
    from pydantic import BaseModel
except ImportError as error:
    raise MissingExtra("autogen-core", "harness") from error


@final
class AutoGenChatClient(ChatCompletionClient):
    """A :class:`~refork.chat.ChatModel` that AutoGen's agents can ask.

    ``counter`` counts the tokens of its window of ``window`` tokens; tool schemas count as one message. The
    model is asked in a thread, so the agents' loop goes on. It cannot be dumped as a component: a
    model is an object, not a configuration. A named ``tool_choice`` offers that tool alone; no
    chat model can be forced to call.

    Raises: BadInput for a window under 1.
    """

    component_type = "model"

    def __init__(
        self,
        model: ChatModel,
        counter: Counter = approximate_tokens,
        window: int = 128_000,
        draw: int = 0,
    ) -> None:
        if window < 1:
            raise BadInput(f"window is {window}; it must be at least 1")
        self._model = model
        self._counter = counter
        self._window = window
        self._draw = draw
        self._last = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self._total = RequestUsage(prompt_tokens=0, completion_tokens=0)

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """The model's answer. Raises BadInput for structured output, which a chat model does not promise."""
        if json_output not in (None, False):
            raise BadInput("this client gives plain text and tool calls, no structured output")
        offered = _offered(tools, tool_choice)
        asked = asyncio.ensure_future(
            asyncio.to_thread(self._model.reply, from_autogen(messages), tools=offered, draw=self._draw)
        )
        if cancellation_token is not None:
            # The thread itself cannot be stopped: what is cancelled is the waiting for it.
            cancellation_token.link_future(asked)
        return self._result(await asked)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **settings: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """The answer's text in one piece, then the result; ``settings`` as :meth:`create` takes them."""
        result = await self.create(messages, **settings)
        if isinstance(result.content, str):
            yield result.content
        yield result

    def _result(self, reply: Reply) -> CreateResult:
        cost = reply.cost
        used = RequestUsage(prompt_tokens=cost.tokens_in or 0, completion_tokens=cost.tokens_out or 0)
        self._last = used
        self._total = RequestUsage(
            prompt_tokens=self._total.prompt_tokens + used.prompt_tokens,
            completion_tokens=self._total.completion_tokens + used.completion_tokens,
        )
        calls = [
            FunctionCall(id=key, name=name, arguments=text) for key, name, text in calls_of(reply.message)
        ]
        if calls:
            thought = reply.text or None
            return CreateResult(
                finish_reason="function_calls", content=calls, usage=used, cached=False, thought=thought
            )
        reason: Literal["stop", "length"] = "length" if reply.finish == "length" else "stop"
        return CreateResult(finish_reason=reason, content=reply.text, usage=used, cached=False)

    async def close(self) -> None:
        """Nothing is held open."""

    def actual_usage(self) -> RequestUsage:
        """Tokens of the last call."""
        return self._last

    def total_usage(self) -> RequestUsage:
        """Tokens of all calls."""
        return self._total

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens of messages and tool schemas by the counter."""
        shown: list[Message] = from_autogen(messages)
        if tools:
            shown.append({"role": "system", "content": json.dumps([_schema(tool) for tool in tools])})
        return self._counter(shown) if shown else 0

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()
    ) -> int:
        """What the messages leave of the window; negative where they are over it."""
        return self._window - self.count_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> ModelInfo:
        """The older name of model_info."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do, as far as a chat model says."""
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=False,
            family=ModelFamily.UNKNOWN,
            structured_output=False,
            multiple_system_messages=True,
        )


def _offered(
    tools: Sequence[Tool | ToolSchema], choice: Tool | Literal["auto", "required", "none"]
) -> tuple[Json, ...]:
    if choice == "none":
        return ()
    named = None if isinstance(choice, str) else choice.name
    schemas = [_schema(tool) for tool in tools]
    return tuple(one for one in schemas if named in (None, one["function"]["name"]))


def _schema(tool: Tool | ToolSchema) -> Json:
    """A tool in the OpenAI form."""
    said = tool if isinstance(tool, dict) else tool.schema
    return {"type": "function", "function": dict(said)}
