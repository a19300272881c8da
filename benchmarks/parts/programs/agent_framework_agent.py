"""An agent of Microsoft's agent framework, over responses; ``chat``: over chat completions."""

import asyncio
import os
import sys
from pathlib import Path

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

prompt, modes = sys.argv[1], sys.argv[2:]


def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    with Path(os.environ["VISITS"]).open("a") as marks:
        marks.write(place + "\n")
    return f"the {place} is quiet"


async def main() -> None:
    """Run the agent."""
    client = (OpenAIChatCompletionClient if "chat" in modes else OpenAIChatClient)(model="m")
    agent = Agent(client=client, instructions="Visit what you are told.", tools=[visit])
    if "stream" in modes:
        streamed = agent.run(prompt, stream=True)
        async for _ in streamed:
            pass
        print((await streamed.get_final_response()).text)
    else:
        print((await agent.run(prompt)).text)


asyncio.run(main())
