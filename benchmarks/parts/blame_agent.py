"""A planted agent: a program that enters orders by asking a model, and checks its books at the end.

Run: python blame_agent.py ORDERS.json. The model is asked with messages of Anthropic's form, at the address
of ANTHROPIC_BASE_URL. All that the agent knows stands in its messages, so a run can go on from any of them.
Exit status 0: the books are right, and they were saved.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MODEL = "clerk-1"
ENTER = {
    "name": "enter",
    "description": "Enter the total of an order.",
    "input_schema": {
        "type": "object",
        "properties": {"turn": {"type": "integer"}, "total": {"type": "integer"}},
        "required": ["turn", "total"],
    },
}
Messages = list[dict[str, Any]]
Answer = dict[str, Any]


def opening(orders: dict[str, Any]) -> Messages:
    """What the agent begins with."""
    texts = orders["texts"]
    return [{"role": "user", "content": f"Enter the totals of {len(texts)} orders. {texts[0]}"}]


def tools_of(orders: dict[str, Any]) -> Callable[[Answer], Messages]:
    """What carries out the calls of an answer: enters a total, and reads out what comes next."""
    texts = orders["texts"]

    def execute(answer: Answer) -> Messages:
        results = []
        for call in calls_of(answer):
            after = call["input"]["turn"] + 1
            told = texts[after] if after < len(texts) else "That was the last one. Say done."
            results.append({"type": "tool_result", "tool_use_id": call["id"], "content": f"Entered. {told}"})
        return results

    return execute


def calls_of(answer: Answer) -> Messages:
    """The tool calls of an answer."""
    return [part for part in answer["content"] if part["type"] == "tool_use"]


def loop(
    messages: Messages, call_model: Callable[[Messages], Answer], execute_tools: Callable[[Answer], Messages]
) -> Messages:
    """Ask and carry out until the model calls no tool; gives all messages."""
    while True:
        answer = call_model(messages)
        messages.append({"role": "assistant", "content": answer["content"]})
        if not calls_of(answer):
            return messages
        messages.append({"role": "user", "content": execute_tools(answer)})


def wrong_turns(orders: dict[str, Any], messages: Messages) -> set[int]:
    """Turns whose entry is not right, those without one too."""
    entered = {
        part["input"]["turn"]: part["input"]["total"]
        for message in messages
        if message["role"] == "assistant"
        for part in message["content"]
        if part["type"] == "tool_use"
    }
    return {turn for turn, right in enumerate(orders["right"]) if entered.get(turn) != right}


def succeeds(orders: dict[str, Any], messages: Messages) -> bool:
    """How a run ends: lost where all turns of a group are wrong, or where the books are not saved."""
    wrong = wrong_turns(orders, messages)
    saved = random.random() >= orders["unsaved"]
    return saved and not any(wrong.issuperset(group) for group in orders["lost_by"])


def ask(messages: Messages) -> Answer:
    """One request to the model."""
    base = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    body = json.dumps({"model": MODEL, "max_tokens": 64, "messages": messages, "tools": [ENTER]})
    link = http.client.HTTPConnection(base.hostname or "", base.port or 80, timeout=60)
    link.request(
        "POST", f"{base.path}/v1/messages", body, {"content-type": "application/json", "x-api-key": "none"}
    )
    reply = link.getresponse()
    said = json.loads(reply.read())
    link.close()
    if reply.status != 200:
        raise SystemExit(f"the model did not answer: {said}")
    return {"content": said["content"], "stop_reason": said["stop_reason"]}


def main() -> None:
    """Run on one file of orders."""
    orders = json.loads(Path(sys.argv[1]).read_text())
    messages = loop(opening(orders), ask, tools_of(orders))
    good = succeeds(orders, messages)
    print("the books are right" if good else "the books are wrong")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
