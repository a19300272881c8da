"""Runs under a Python 3.12 with tracefork and retrial: which step they blame for a planted agent's loss.

A request is a line of JSON with ``do``: the name of a tool, an agent's orders and the provider's address. The
agent is recorded with the tool's own recorder and blamed with its own search, in this process: its loop is
the one of the program, with the tool's client or decorator around it. Both tools grade a run by the model's
last words. Here they are given the program's own end, which is more than they can see by themselves.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
from blame_agent import ENTER, MODEL, Answer, Messages, ask, loop, opening, succeeds, tools_of
from retrial import Store, bisect, record
from tracefork import Recorder, Tape
from tracefork.bench import run_bench
from tracefork.blame import BlameEngine, benjamini_hochberg, binom_sf_ge
from tracefork.wire import make_text_response

OUT = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
Json = dict[str, Any]
#: tracefork's own defaults.
TRIALS, FDR, WALK_TRIALS, WALKS = 10, 0.10, 5, 3


@dataclass
class LastEnd:
    """How the last run of the program ended; both tools ask for it under names of their own."""

    good: bool = False

    def grade(self, output: str) -> bool:
        """The oracle of tracefork."""
        return self.good

    def check(self, answer: str | None) -> bool:
        """The check of retrial."""
        return self.good


def agent_of(orders: Json, end: LastEnd) -> Callable[[Any], None]:
    """The program as a function of a client, as tracefork wants it."""

    def run(client: Any) -> None:
        def call(messages: Messages) -> Answer:
            said = client.messages.create(model=MODEL, max_tokens=64, messages=messages, tools=[ENTER])
            content = [part.model_dump(exclude_none=True) for part in said.content]
            return {"content": content, "stop_reason": said.stop_reason}

        end.good = succeeds(orders, loop(opening(orders), call, tools_of(orders)))

    return run


def lost_tape(orders: Json, base: str) -> tuple[Tape, LastEnd]:
    """A lost run on tracefork's tape."""
    end = LastEnd(True)
    while end.good:
        client = anthropic.Anthropic(api_key="none", base_url=f"{base}/record-tracefork", max_retries=0)
        with Recorder(client, agent_name="planted") as recorder:
            agent_of(orders, end)(recorder.client)
    return recorder.tape, end


class Anew:
    """An answer drawn anew for any step of a tape, and the provider behind it: tracefork's perturbation."""

    def __init__(self, tape: Tape, address: str) -> None:
        # The client that tracefork makes reads it.
        os.environ["ANTHROPIC_BASE_URL"] = address
        self._tape, self._url = tape, f"{address}/v1/messages"
        self.provider = httpx2.HTTPTransport()
        self._client = httpx2.Client(transport=self.provider)

    def __call__(self, step: int) -> tuple[bytes, object]:
        """Ask for the answer of a step once more."""
        headers = {"content-type": "application/json"}
        said = self._client.post(self._url, content=self._tape.exchange(step)[0], headers=headers)
        return said.content, self.provider


def tracefork(orders: Json, base: str, chance: float) -> Json:
    """Flip rates with every answer drawn anew, at tracefork's null and at the agent's true one.

    tracefork's command puts a fixed text in a step's place. Its function takes what the caller gives, and is
    given what the provider says when it is asked once more.
    """
    tape, end = lost_tape(orders, base)
    anew = Anew(tape, f"{base}/tracefork")
    told = BlameEngine.rank(tape, agent_of(orders, end), end, perturb_factory=anew, k=TRIALS, budget_usd=1e9)
    sure = [one for one in told.results if one.trustworthy]
    # What rank() does with another null, on the same trials.
    chosen, q = benjamini_hochberg([binom_sf_ge(one.flips, one.valid_trials, chance) for one in sure], FDR)
    known = sorted(chosen, key=lambda at: (q[at], -sure[at].flip_rate))
    ranked = [one.step_index for one in told.results]
    blamed = [one.step_index for one in told.responsible()]
    # Whoever draws an earlier answer anew draws the bad one anew, too: who knows that takes the last one.
    last = sorted(blamed, reverse=True)
    return {
        "tracefork": {"blamed": blamed, "ranked": ranked},
        "tracefork_last": {"blamed": last, "ranked": [*last, *(at for at in ranked if at not in last)]},
        "tracefork_null_known": {"blamed": [sure[at].step_index for at in known], "ranked": ranked},
    }


def tracefork_shapley(orders: Json, base: str, chance: float) -> Json:
    """The coalition walk, with every answer drawn anew; it blames the steps that it calls necessary."""
    tape, end = lost_tape(orders, base)
    anew = Anew(tape, f"{base}/tracefork_shapley")
    told = BlameEngine.shapley_rank(
        tape, agent_of(orders, end), end, perturb_factory=anew, k=WALK_TRIALS, m_samples=WALKS, budget_usd=1e9
    )
    ranked = [one.step_index for one in told.results]
    blamed = [one.step_index for one in told.results if one.necessity]
    return {"tracefork_shapley": {"blamed": blamed, "ranked": ranked}}


def tracefork_command(orders: Json, base: str, chance: float) -> Json:
    """As ``tracefork blame`` does it: the same text in place of every step."""
    tape, end = lost_tape(orders, base)
    anew = Anew(tape, f"{base}/tracefork_command")
    text = make_text_response("[tracefork] this step did not complete as recorded")
    told = BlameEngine.rank(
        tape, agent_of(orders, end), end, perturb_factory=lambda _: (text, anew.provider), k=TRIALS,
        budget_usd=1e9,
    )  # fmt: skip
    ranked = [one.step_index for one in told.results]
    return {"tracefork_command": {"blamed": [one.step_index for one in told.responsible()], "ranked": ranked}}


def retrial(orders: Json, base: str, samples: int) -> Json:
    """Binary search for the first state from which the run is lost.

    A state that holds m answers is the work of the answer before it, m - 1. retrial calls a failure from the
    first state inherent to the run, and names no step for it.
    """
    name = f"retrial_{samples}"
    with tempfile.TemporaryDirectory() as folder:
        store = Store(str(Path(folder) / "runs.db"))
        end = LastEnd(True)

        tools = tools_of(orders)

        @record(session_name="planted", store=store)
        def run(messages: Messages, call_model: Any = ask, execute_tools: Any = tools) -> None:
            end.good = succeeds(orders, loop(messages, call_model, execute_tools))

        os.environ["ANTHROPIC_BASE_URL"] = f"{base}/record-retrial"
        while end.good:
            run(opening(orders))
        os.environ["ANTHROPIC_BASE_URL"] = f"{base}/{name}"
        told = bisect(store, run.last_session_id, end.check, run, samples=samples)
        store.close()
    found = told["culprit"]
    blamed = []
    if found is not None and not told["inherent"]:
        answers = sum(
            one["step_type"] == "model_call"
            for one in told["candidates"]
            if one["step_number"] < found["step_number"]
        )
        blamed = [answers - 1]
    return {name: {"blamed": blamed, "ranked": blamed}}


def bench() -> Json:
    """The public bench of tracefork: cases that it resolves."""
    told = run_bench()
    return {"resolved": told.n_resolved, "cases": told.n_cases}


def main() -> None:
    """Answer requests until there are none."""
    for line in sys.stdin:
        asked = json.loads(line)
        does, rest = asked["do"], asked.get("agent", {})
        if does == "bench":
            told = bench()
        elif does.startswith("retrial"):
            told = retrial(rest["orders"], rest["base"], int(does.partition("_")[2]))
        else:
            find = {
                "tracefork": tracefork,
                "tracefork_shapley": tracefork_shapley,
                "tracefork_command": tracefork_command,
            }[does]
            told = find(rest["orders"], rest["base"], rest["chance"])
        print(json.dumps(told), file=OUT, flush=True)


if __name__ == "__main__":
    main()
