"""Google's package, which calls a Python function by itself."""

import os
import sys
from pathlib import Path

from google import genai
from google.genai import types

prompt, modes = sys.argv[1], sys.argv[2:]


def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    with Path(os.environ["VISITS"]).open("a") as marks:
        marks.write(place + "\n")
    return f"the {place} is quiet"


client = genai.Client()
chat = client.chats.create(model="m", config=types.GenerateContentConfig(tools=[visit]))
if "stream" in modes:
    print("".join(piece.text or "" for piece in chat.send_message_stream(prompt)))
else:
    print(chat.send_message(prompt).text)
