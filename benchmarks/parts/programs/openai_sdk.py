"""OpenAI's package alone, with a tool: chat completions, or with ``responses`` the newer interface."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import openai

prompt, modes = sys.argv[1], sys.argv[2:]
client = openai.OpenAI()
place = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    with Path(os.environ["VISITS"]).open("a") as marks:
        marks.write(place + "\n")
    return f"the {place} is quiet"


def chat(talk: list[Any]) -> Any:
    """One answer, whole or from its pieces; a stream that breaks off is asked for again."""
    tools: Any = [{"type": "function", "function": {"name": "visit", "parameters": place}}]
    if "stream" not in modes:
        return client.chat.completions.create(model="m", messages=talk, tools=tools).choices[0].message
    try:
        with client.chat.completions.stream(model="m", messages=talk, tools=tools) as stream:
            return stream.get_final_completion().choices[0].message
    except (openai.APIError, httpx.HTTPError, openai.LengthFinishReasonError, AssertionError, RuntimeError):
        return chat(talk)


def by_chat() -> str:
    """The agent over chat completions."""
    talk: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        said = chat(talk)
        talk.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
        if not said.tool_calls:
            return str(said.content)
        for call in said.tool_calls:
            seen = visit(**json.loads(call.function.arguments))
            talk.append({"role": "tool", "tool_call_id": call.id, "content": seen})


def by_responses() -> str:
    """The agent over responses."""
    talk: list[Any] = [{"role": "user", "content": prompt}]
    tools: Any = [{"type": "function", "name": "visit", "parameters": place, "strict": False}]
    while True:
        if "stream" in modes:
            with client.responses.stream(model="m", input=talk, tools=tools) as stream:
                said: Any = stream.get_final_response()
        else:
            said = client.responses.create(model="m", input=talk, tools=tools)
        talk += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in said.output]
        calls = [item for item in said.output if item.type == "function_call"]
        if not calls:
            return str(said.output_text)
        for call in calls:
            seen = visit(**json.loads(call.arguments))
            talk.append({"type": "function_call_output", "call_id": call.call_id, "output": seen})


if "leave" in modes:  # a reader that has heard enough
    question: Any = [{"role": "user", "content": "count for a long time"}]
    with client.chat.completions.create(model="m", messages=question, stream=True) as pieces:
        next(iter(pieces))
print(by_responses() if "responses" in modes else by_chat())
