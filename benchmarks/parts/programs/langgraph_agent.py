"""An agent of LangChain and LangGraph; ``anthropic``: over Anthropic's messages."""

import os
import sys
import urllib.request
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool

prompt, modes = sys.argv[1], sys.argv[2:]


@tool
def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    urllib.request.urlopen(f"{os.environ['VISITED']}/{place}", data=b"").close()
    return f"the {place} is quiet"


model: Any
if "anthropic" in modes:
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model="m")
else:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m")
graph = create_agent(model, [visit], system_prompt="Visit what you are told.")
question: Any = {"messages": [("user", prompt)]}
if "stream" in modes:
    for mode, part in graph.stream(question, stream_mode=["messages", "values"]):
        state = part if mode == "values" else None
    print(state["messages"][-1].text)
else:
    print(graph.invoke(question)["messages"][-1].text)
