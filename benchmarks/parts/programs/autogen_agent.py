"""An agent of AutoGen's AgentChat."""

import asyncio
import os
import sys
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_ext.models.openai import OpenAIChatCompletionClient

prompt, modes = sys.argv[1], sys.argv[2:]


async def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    with Path(os.environ["VISITS"]).open("a") as marks:
        marks.write(place + "\n")
    return f"the {place} is quiet"


async def main() -> None:
    """Run the agent."""
    client = OpenAIChatCompletionClient(model="gpt-4o")
    agent = AssistantAgent(
        "visitor", client, tools=[visit], max_tool_iterations=9, model_client_stream="stream" in modes
    )
    if "stream" in modes:
        async for event in agent.run_stream(task=prompt):
            result = event if isinstance(event, TaskResult) else None
    else:
        result = await agent.run(task=prompt)
    assert result is not None
    print(result.messages[-1].content)
    await client.close()


asyncio.run(main())
