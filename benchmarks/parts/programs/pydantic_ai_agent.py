"""An agent of Pydantic AI; ``anthropic``: over Anthropic's messages."""

import asyncio
import os
import sys
import urllib.request
from collections.abc import AsyncIterable

from pydantic_ai import Agent, AgentStreamEvent, RunContext

prompt, modes = sys.argv[1], sys.argv[2:]
agent = Agent(
    "anthropic:m" if "anthropic" in modes else "openai-chat:m", instructions="Visit what you are told."
)


@agent.tool_plain
def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    urllib.request.urlopen(f"{os.environ['VISITED']}/{place}", data=b"").close()
    return f"the {place} is quiet"


async def listen(context: RunContext, events: AsyncIterable[AgentStreamEvent]) -> None:
    """Hear the pieces as they come."""
    async for _ in events:
        pass


async def main() -> None:
    """Run the agent."""
    print((await agent.run(prompt, event_stream_handler=listen if "stream" in modes else None)).output)


asyncio.run(main())
