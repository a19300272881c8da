"""As much of ``verifiers`` as its adapter touches, for where the library is not installed.

The same environments (:data:`ENVIRONMENTS`) run on this and on the library itself.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import types
from typing import Any

#: A module with ``load_environment``: a guessing game, tools, single turns.
ENVIRONMENTS = '''
import verifiers as vf

def rows(count, start=0):
    boxes = range(start, start + count)
    made = [{"question": f"guess the number of box {n}", "answer": str(n * 7 % 10)} for n in boxes]
    if hasattr(vf, "IMITATION"):
        return made
    from datasets import Dataset
    return Dataset.from_list(made)

def content(message):
    return (message["content"] if isinstance(message, dict) else message.content).strip()

class Guess(vf.MultiTurnEnv):
    async def setup_state(self, state, **kwargs):
        state["tries"] = []
        return state

    async def env_response(self, messages, state, **kwargs):
        said = content(messages[-1])
        state["tries"].append(said)
        if said == "crash":
            raise vf.Error("the box is stuck")
        if said == "hang":
            import asyncio
            await asyncio.sleep(60)
        if said == state["answer"]:
            state["final_env_response"] = [{"role": "user", "content": "right"}]
            return state["final_env_response"]
        return [{"role": "user", "content": "higher" if said < state["answer"] else "lower"}]

def right(state, **kwargs):
    return 1.0 if state["answer"] in state.get("tries", []) else 0.0

def exact(completion, answer, **kwargs):
    return float(content(completion[-1]) == answer)

def broken(**kwargs):
    raise RuntimeError("out of ink")

def seven(completion, **kwargs):
    return 1.0 if "7" in str(completion) else 0.0

async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b

def load_environment(kind="guess", size=40, evaluated=0):
    data = {"dataset": rows(size)} | ({"eval_dataset": rows(evaluated, size - 4)} if evaluated else {})
    if kind == "guess":
        return Guess(rubric=vf.Rubric(funcs=[right]), system_prompt="one digit a turn", max_turns=6, **data)
    if kind == "tools":
        return vf.ToolEnv(tools=[add], rubric=vf.Rubric(funcs=[seven]), max_turns=5, **data)
    return vf.SingleTurnEnv(rubric=vf.Rubric(funcs=[broken if kind == "broken" else exact]), **data)
'''


class Error(Exception):
    """What an environment may raise."""


class Rubric:
    def __init__(self, funcs: list[Any]) -> None:
        self.funcs = funcs


class MultiTurnEnv:
    """The library's loop, without what the adapter does not see."""

    message_type = "chat"
    oai_tools: Any = None

    def __init__(
        self,
        rubric: Rubric,
        dataset: Any,
        eval_dataset: Any = None,
        system_prompt: str = "",
        max_turns: int = -1,
    ) -> None:
        self.rubric, self.max_turns = rubric, max_turns
        self.dataset, self.eval_dataset = dataset, eval_dataset
        self.system_prompt = system_prompt

    def _rows(self, rows: Any) -> list[dict[str, Any]]:
        head = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        return [
            {"example_id": n, "prompt": [*head, {"role": "user", "content": row["question"]}], **row}
            for n, row in enumerate(rows)
        ]

    def get_dataset(self) -> list[dict[str, Any]]:
        return self._rows(self.dataset)

    def get_eval_dataset(self) -> list[dict[str, Any]]:
        return self._rows(self.eval_dataset)

    async def setup_state(self, state: Any) -> Any:
        return state

    async def run_rollout(self, row: Any, client: Any, model: str, sampling: Any) -> dict[str, Any]:
        state = dict(row)
        messages = list(row["prompt"])
        stop = "max_turns_reached"
        state = await self.setup_state(state)
        for turn in range(self.max_turns):
            reply = await client.chat.completions.create(model=model, messages=messages, tools=self.oai_tools)
            messages.append(reply.choices[0].message.model_dump(exclude_none=True))
            if self.oai_tools and not messages[-1].get("tool_calls"):
                stop = "no_tools_called"
                break
            if turn + 1 == self.max_turns:
                break
            try:
                messages += await self.env_response(messages, state)
            except Error as error:
                state["error"], stop = {"error_chain_repr": repr(error)}, "has_error"
                break
            if state.get("final_env_response"):
                stop = "has_final_env_response"
                break
        completion = messages[len(row["prompt"]) :]
        metrics = {f.__name__: self._graded(f, state, completion) for f in self.rubric.funcs}
        return {
            "completion": completion,
            "metrics": metrics,
            "reward": sum(metrics.values()),
            "stop_condition": stop,
            "error": state.get("error"),
        }

    def _graded(self, grade: Any, state: Any, completion: Any) -> float:
        try:
            return float(grade(state=state, completion=completion, answer=state["answer"]))
        except Exception as error:
            logging.getLogger("verifiers.rubric").error(
                "Error calling reward function %s: %s", grade.__name__, error
            )
            return 0.0


class SingleTurnEnv(MultiTurnEnv):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given, max_turns=1)


class ToolEnv(MultiTurnEnv):
    def __init__(self, tools: list[Any], **given: Any) -> None:
        super().__init__(**given)
        self.known = {tool.__name__: tool for tool in tools}
        self.oai_tools = [
            {"type": "function", "function": {"name": name, "description": inspect.getdoc(tool)}}
            for name, tool in self.known.items()
        ]

    async def env_response(self, messages: Any, state: Any) -> Any:
        found = []
        for call in messages[-1]["tool_calls"]:
            asked = call["function"]
            try:
                text = str(await self.known[asked["name"]](**json.loads(asked["arguments"])))
            except Exception as error:
                text = str(error)
            found.append({"role": "tool", "content": text, "tool_call_id": call["id"]})
        return found


def load_environment(env_id: str, **arguments: Any) -> Any:
    try:
        module = importlib.import_module(env_id.replace("-", "_"))
    except ImportError as error:
        raise ValueError(f"Could not import '{env_id}' environment.") from error
    return module.load_environment(**arguments)


def module() -> types.ModuleType:
    """The imitation as the module ``verifiers``."""
    made = types.ModuleType("verifiers")
    for one in (Error, Rubric, MultiTurnEnv, SingleTurnEnv, ToolEnv, load_environment):
        setattr(made, one.__name__, one)
    made.IMITATION = True
    return made
