"""Runs under a Python with inspect_ai: writes a log, and opens, filters and reads it on request.

A request is a line of JSON with ``do``; the answer has the milliseconds and what was found. Nothing else is
written to standard output. Every request opens the file anew.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalSample,
    EvalSpec,
    EvalStats,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score

#: Replies go here; what a library prints does not.
OUT = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def write(texts: str, file: str) -> int:
    """Samples from lines of JSON: messages in turns, and whether it succeeded."""
    samples = []
    with open(texts) as lines:  # noqa: PTH123
        for number, line in enumerate(lines, 1):
            said, good = json.loads(line)
            messages = [
                (ChatMessageAssistant if turn % 2 else ChatMessageUser)(content=text)
                for turn, text in enumerate(said)
            ]
            output = ModelOutput.from_content("walker", said[-1])
            scores = {"success": Score(value="C" if good else "I")}
            samples.append(
                EvalSample(
                    id=number,
                    epoch=1,
                    input=said[0],
                    target="",
                    messages=messages,
                    output=output,
                    scores=scores,
                )
            )
    spec = EvalSpec(
        created=datetime.now(UTC).isoformat(), task="rollouts", model="none/none",
        dataset=EvalDataset(name="rollouts", samples=len(samples)), config=EvalConfig(),
    )  # fmt: skip
    write_eval_log(EvalLog(status="success", eval=spec, stats=EvalStats(), samples=samples), file)
    return len(samples)


def wrong(file: str) -> list[int]:
    """Ids of the samples that failed, from the summaries that the log keeps beside them."""
    summaries = read_eval_log_sample_summaries(file)
    return [int(one.id) for one in summaries if one.scores and one.scores["success"].value == "I"]


def search(file: str, word: str) -> int:
    """How many samples say a word; the whole log must be read."""
    samples = read_eval_log(file).samples or []
    return sum(any(word in message.text for message in one.messages) for one in samples)


def main() -> None:
    """Answer until the other side closes."""
    for line in sys.stdin:
        asked = json.loads(line)
        file = asked["file"]
        begun = time.perf_counter()
        match asked["do"]:
            case "write":
                found = write(asked["texts"], file)
            case "open":
                found = str(read_eval_log(file, header_only=True).status)
            case "filter":
                found = wrong(file)
            case "read":
                found = [message.text for message in read_eval_log_sample(file, asked["id"]).messages]
            case "search":
                found = search(file, asked["word"])
        spent = 1e3 * (time.perf_counter() - begun)
        print(json.dumps({"ms": spent, "found": found}), file=OUT, flush=True)


if __name__ == "__main__":
    main()
