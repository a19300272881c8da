"""The OpenAI Agents SDK; ``chat``: over chat completions in place of responses."""

import asyncio
import os
import sys
import urllib.request

from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool

prompt, modes = sys.argv[1], sys.argv[2:]


@function_tool
def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    urllib.request.urlopen(f"{os.environ['VISITED']}/{place}", data=b"").close()
    return f"the {place} is quiet"


model = OpenAIChatCompletionsModel("m", AsyncOpenAI()) if "chat" in modes else "m"
agent = Agent(name="Visitor", instructions="Visit what you are told.", tools=[visit], model=model)


async def main() -> None:
    """Run the agent."""
    if "stream" in modes:
        streamed = Runner.run_streamed(agent, prompt)
        async for _ in streamed.stream_events():
            pass
        print(streamed.final_output)
    else:
        print((await Runner.run(agent, prompt)).final_output)


asyncio.run(main())
