"""Any chat model of ours as agent-framework's chat client, with its function loop and middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, final

from refork.chat import ChatModel
from refork.errors import MissingExtra
from refork.types import Json
from refork_methods.pin.frameworks.agent_framework_messages import from_framework, to_framework

try:
    from agent_framework import (
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        ChatResponseUpdate,
        FunctionInvocationLayer,
        FunctionTool,
        ResponseStream,
        UsageDetails,
        prepend_instructions_to_messages,
    )
    from agent_framework import Message as FrameworkMessage
except ImportError as error:
    raise MissingExtra("agent-framework-core", "harness") from error


@final
class FrameworkChatClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A :class:`~refork.chat.ChatModel` that agent-framework's agents and summarisers can ask.

    The agent's instructions stand first, as a system message. The model is asked in a thread, so the agents'
    loop goes on; a stream is the answer in one piece.
    """

    def __init__(self, model: ChatModel, draw: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self._model = model
        self._draw = draw

    def _inner_get_response(
        self,
        *,
        messages: Sequence[FrameworkMessage],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        if stream:
            return self._build_response_stream(self._updates(messages, options))
        return self._answer(messages, options)

    async def _answer(
        self, messages: Sequence[FrameworkMessage], options: Mapping[str, Any]
    ) -> ChatResponse[Any]:
        checked = await self._validate_options(options)
        shown = prepend_instructions_to_messages(list(messages), checked.get("instructions"))
        offered = () if _choice(checked) == "none" else tuple(_schema(t) for t in checked.get("tools") or ())
        reply = await asyncio.to_thread(
            self._model.reply, from_framework(shown), tools=offered, draw=self._draw
        )
        usage = UsageDetails(input_token_count=reply.cost.tokens_in, output_token_count=reply.cost.tokens_out)
        called = bool(reply.message.get("tool_calls"))
        return ChatResponse(
            messages=to_framework([reply.message]),
            model=self._model.name,
            finish_reason="tool_calls" if called else "length" if reply.finish == "length" else "stop",
            usage_details=usage,
        )

    async def _updates(
        self, messages: Sequence[FrameworkMessage], options: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponseUpdate]:
        response = await self._answer(messages, options)
        for message in response.messages:
            yield ChatResponseUpdate(
                contents=message.contents,
                role="assistant",
                model=response.model,
                finish_reason=response.finish_reason,
            )


def _choice(options: Mapping[str, Any]) -> str | None:
    choice = options.get("tool_choice")
    return choice.get("mode") if isinstance(choice, Mapping) else choice


def _schema(tool: Any) -> Json:
    return tool.to_json_schema_spec() if isinstance(tool, FunctionTool) else dict(tool)
