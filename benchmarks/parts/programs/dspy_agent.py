"""A ReAct module of DSPy, whose cache is off."""

import os
import sys
from pathlib import Path

import dspy

prompt, modes = sys.argv[1], sys.argv[2:]


def visit(place: str) -> str:
    """Go to a place, and leave a mark there."""
    with Path(os.environ["VISITS"]).open("a") as marks:
        marks.write(place + "\n")
    return f"the {place} is quiet"


dspy.configure(lm=dspy.LM("openai/m", cache=False))
print(dspy.ReAct("question -> answer", tools=[visit])(question=prompt).answer)
