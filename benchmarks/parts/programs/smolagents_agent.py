"""An agent of smolagents that calls tools."""

import os
import sys
import urllib.request

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

prompt, modes = sys.argv[1], sys.argv[2:]


@tool
def visit(place: str) -> str:
    """Go to a place, and leave a mark there.

    Args:
        place: Where to go.
    """
    urllib.request.urlopen(f"{os.environ['VISITED']}/{place}", data=b"").close()
    return f"the {place} is quiet"


model = OpenAIServerModel("m", api_key=os.environ["OPENAI_API_KEY"])
agent = ToolCallingAgent([visit], model, verbosity_level=0, stream_outputs="stream" in modes)
print(agent.run(prompt))
