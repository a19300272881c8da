"""An agent of CrewAI."""

import os
import sys
from pathlib import Path

from crewai import LLM, Agent
from crewai.tools import tool

prompt, modes = sys.argv[1], sys.argv[2:]


@tool
def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    with Path(os.environ["VISITS"]).open("a") as marks:
        marks.write(place + "\n")
    return f"the {place} is quiet"


llm = LLM(model="openai/gpt-4o", stream="stream" in modes)
agent = Agent(role="visitor", goal="visit", backstory="You visit.", tools=[visit], llm=llm)
print(agent.kickoff(prompt).raw)
