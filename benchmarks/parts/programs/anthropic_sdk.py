"""Anthropic's package alone, with a tool."""

import os
import sys
from pathlib import Path
from typing import Any

import anthropic

prompt, modes = sys.argv[1], sys.argv[2:]
client = anthropic.Anthropic()
place = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
told: Any = {"model": "m", "max_tokens": 99, "tools": [{"name": "visit", "input_schema": place}]}
talk: list[Any] = [{"role": "user", "content": prompt}]
while True:
    if "stream" in modes:
        with client.messages.stream(messages=talk, **told) as stream:
            said = stream.get_final_message()
    else:
        said = client.messages.create(messages=talk, **told)
    talk.append({"role": "assistant", "content": said.content})
    results = []
    for block in said.content:
        if block.type == "tool_use":
            with Path(os.environ["VISITS"]).open("a") as marks:
                marks.write(f"{block.input['place']}\n")
            seen = f"the {block.input['place']} is quiet"
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": seen})
    if not results:
        break
    talk.append({"role": "user", "content": results})
print(said.content[0].text)
