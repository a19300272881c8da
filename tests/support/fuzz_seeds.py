"""Good files of every format, small: what a fuzzer changes."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from refork.formats.native import Native
from refork.tree import NewNode, Producer, Score, Tree
from support.mutate import entries
from support.repository import ROOT

FIXTURES = ROOT / "packages/refork/tests/formats/fixtures"
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
CHAT = [
    {"role": "user", "content": "What is there?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "dark"},
    {"role": "assistant", "content": "It is dark."},
]
STEP = {
    "source": "agent", "message": "I look.", "tool_calls": [{"tool_call_id": "c", "function_name": "look"}],
    "observation": {"results": [{"source_call_id": "c", "content": "dark"}]}, "metrics": {"prompt_tokens": 3},
}  # fmt: skip
ATIF = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "a", "version": "1"},
    "steps": [{"source": "user", "message": "go"}, STEP],
}
ROW = {"prompt": CHAT[:1], "completion": CHAT[1:], "reward": 0.5, "task": "t", "metrics": {"m": 1.0}}
WORLD = {"prompt": ["a"], "response": ["b"], "turn_idx": 1, "system_str": "s", "task": "mcp"}
XML = (
    '<desktop-frame xmlns:st="s" xmlns:cp="c"><push-button name="OK" st:visible="true" st:showing="true" '
    'st:enabled="true" cp:screencoord="(10, 20)" cp:size="(30, 40)">OK</push-button></desktop-frame>'
)
SCREENS = [
    {"step_num": 1, "action": "pyautogui.click(1, 2)", "accessibility_tree": XML, "instruction": "press OK"},
    {"step_num": 2, "action": {"action_type": "DONE"}, "response": "done", "observation": {"xml": XML}},
]
PAIR = {
    "input": {"messages": CHAT[:1], "tools": []},
    "preferred_output": CHAT[3:],
    "non_preferred_output": [{"role": "assistant", "content": "b"}],
}
RUN = {
    "id": "a", "trace_id": "t", "run_type": "llm", "name": "m", "start_time": "2026-01-01T00:00:01",
    "inputs": {"messages": [[{"lc": 1, "id": ["HumanMessage"], "kwargs": {"content": "q"}}]]},
    "outputs": {"generations": [[{"text": "a", "message": {"type": "ai", "data": {"content": "a"}}}]]},
    "extra": {"metadata": {"ls_model_name": "m"}}, "feedback_stats": {"ok": {"avg": 1.0}},
}  # fmt: skip
TOOL = {**RUN, "id": "b", "run_type": "tool", "outputs": {"output": {"tool_call_id": "c", "content": "r"}}}
TURN = {"action": "ls", "observation": "a", "response": "I look.", "thought": "", "state": {}, "query": [{}]}
SWE = {
    "trajectory": [TURN], "info": {"exit_status": "submitted"},
    "history": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "I look."}],
}  # fmt: skip


def attribute(key: str, value: str) -> dict[str, Any]:
    """An attribute of OTLP."""
    return {"key": key, "value": {"stringValue": value}}


SPAN = {
    "traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "chat", "kind": 3, "startTimeUnixNano": "1",
    "endTimeUnixNano": "2", "status": {"code": 2, "message": "x"},
    "attributes": [
        attribute("gen_ai.operation.name", "chat"),
        attribute("gen_ai.input.messages", '[{"role": "user", "parts": [{"type": "text", "content": "q"}]}]'),
        attribute("gen_ai.output.messages", '[{"role": "assistant", "parts": [{"content": "a"}]}]'),
        {"key": "n", "value": {"arrayValue": {"values": [{"intValue": "1"}, {"doubleValue": 0.5}]}}},
    ],
    "events": [{"timeUnixNano": "1", "name": "gen_ai.evaluation.result", "attributes": [
        {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 1.0}}]}],
}  # fmt: skip
BATCH = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [SPAN]}]}]}
OLDER = {
    **SPAN, "spanId": "0" * 15 + "3", "parentSpanId": "0" * 15 + "1", "startTimeUnixNano": "5", "events": [
        {"timeUnixNano": "5", "name": "gen_ai.user.message", "attributes": [attribute("content", "q")]},
        {"timeUnixNano": "6", "name": "gen_ai.choice", "attributes": [
            attribute("message", '{"content": "a"}'), attribute("finish_reason", "stop")]},
    ], "attributes": [attribute("gen_ai.system", "x"), attribute("gen_ai.request.model", "m"),
        attribute("gen_ai.prompt.0.role", "user"), attribute("gen_ai.prompt.0.content", "q"),
        attribute("gen_ai.completion.0.content", "a")],
}  # fmt: skip
RAN = {
    **SPAN, "spanId": "0" * 15 + "4", "events": [], "attributes": [
        attribute("gen_ai.operation.name", "execute_tool"), attribute("gen_ai.tool.call.id", "c"),
        attribute("gen_ai.tool.call.result", "dark")],
}  # fmt: skip
SPANS = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [SPAN, OLDER, RAN]}]}]}
LOGS = {
    "resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": [{
        "traceId": SPAN["traceId"], "spanId": SPAN["spanId"], "timeUnixNano": "1",
        "eventName": "gen_ai.user.message", "body": {"kvlistValue": {"values": [attribute("content", "q")]}},
    }]}]}],
}  # fmt: skip
SKYRL = {"prompt_token_ids": [1, 4], "response_ids": [2, 3], "rewards": [0.0, 1.0], "loss_masks": [1, 0]}
VERL = (
    {"input": "q", "output": "a", "gts": "a", "score": 1.0, "step": 1},
    {"prompts": [1], "responses": [2, 3], "attention_mask": [1, 1, 0], "response_mask": [1, 0],
     "token_level_rewards": [0.0, 1.0], "rollout_log_probs": [-1.0, -2.0]},
    {"prompt": [{"role": "user", "content": "q"}], "data_source": "d", "ability": "", "responses": ["a"]},
)  # fmt: skip
TRL = (
    {"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "b", "score_chosen": 1.0},
    {"prompt": "q", "completion": "a", "label": True, "tools": '[{"type": "function"}]'},
    {"prompt": "q", "completions": ["a", "b"], "labels": [True, False]},
    {"prompt_ids": [1], "completion_ids": [2, 3], "logprobs": [-1.0, -2.0], "advantages": [0.5, 0.5]},
    {"messages": CHAT, "reward": 1.0},
)  # fmt: skip
EPISODE = {
    "goal": "Turn wifi on", "is_successful": 1.0, "task_template": "Wifi", "episode_data": {
        "before_element_list": [[{"text": "WiFi", "class_name": "a.Switch", "is_clickable": True}], None],
        "after_element_list": [[{"text": "WiFi", "class_name": "a.Switch", "is_checked": True}], None],
        "action_prompt": ['UI element 0: {"index": 0, "text": "Save", "is_clickable": True}'] * 2,
        "action_output": ['Reason: off\nAction: {"action_type": "click", "index": 0}',
                          'Reason: done\nAction: {"action_type": "status", "goal_status": "complete"}'],
    },
}  # fmt: skip


def _fixture(name: str) -> bytes:
    data = (FIXTURES / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def _archive(name: str) -> bytes:
    """An evaluation with one sample, not packed."""
    out, samples = io.BytesIO(), 0
    with zipfile.ZipFile(out, "w") as packed:
        for entry, body in entries(_fixture(name)):
            samples += entry.startswith("samples/")
            if samples <= 1 or not entry.startswith("samples/"):
                packed.writestr(zipfile.ZipInfo(entry), body)
    return out.getvalue()


def _evaluation(name: str) -> bytes:
    """The same as one document."""
    body = json.loads(_fixture(name))
    return _lines(body | {"samples": body["samples"][:1]})


def _lines(*bodies: Any) -> bytes:
    return "".join(json.dumps(body) + "\n" for body in bodies).encode()


def _native() -> bytes:
    """An export with a task, two branches, arrays, scores and a snapshot."""
    with Tree.memory() as tree, io.StringIO() as out:
        task = tree.append(NewNode(kind="task", text="go", tokens=[5, 9], extra={"world": "lock"}))[0]
        step = NewNode(kind="action", parent=task.id, text="ab", tokens=[7, 8], offsets=[1, 2], policy="p",
                     logprobs=[-0.5, -1.0], snapshot=b"state", settings={"temperature": 1.0})  # fmt: skip
        first = tree.append(step)[0]
        tree.append(NewNode(kind="observation", parent=first.id, keep=1, text="no", message=CHAT[2]))
        judge = tree.add_producer(Producer("judge"))
        tree.add_scores([Score(first.id, "reward", 1.0, judge)])
        Native().write(tree.records(), out)
        return out.getvalue().encode()


def _database(name: str) -> bytes:
    """A log of llm in small pages, of which most hold a row or two, with few of its responses."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "logs.db"
        raw = bytearray(_fixture(name))
        raw[18:20] = b"\1\1"  # no WAL, in which the size of pages cannot change
        file.write_bytes(raw)
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
            for table in ("responses", "threads"):
                with contextlib.suppress(sqlite3.OperationalError):
                    db.execute(f"DELETE FROM {table} WHERE rowid NOT IN (SELECT rowid FROM {table} LIMIT 3)")
            db.execute("PRAGMA page_size = 512")
            db.execute("VACUUM")
        return file.read_bytes()


#: What makes a good file of each format, by the reader's name.
_MADE: dict[str, Callable[[], list[bytes]]] = {
    "native": lambda: [_native()],
    "inspect": lambda: [
        _archive("inspect.eval"),
        _archive("inspect-killed.eval"),
        _evaluation("inspect.json.gz"),
        _evaluation("inspect-server.json.gz"),
        _fixture("inspect-killed.eval"),
    ],
    "claude-code": lambda: [
        _fixture(f"claude-code-{name}.jsonl.gz") for name in ("pair", "compacted", "failed")
    ],
    "codex": lambda: [_fixture(f"codex-{name}.jsonl.gz") for name in ("compacted", "failed")],
    "opencode": lambda: [_fixture(f"opencode-{name}.json.gz") for name in ("compacted", "failed")],
    "swe-agent": lambda: [_lines(SWE)],
    "mini-swe-agent": lambda: [_fixture(f"mini-{name}.traj.json") for name in ("tools", "text", "responses")],
    "tau-bench": lambda: [_fixture("tau-bench.json")],
    "openai-preference": lambda: [_lines(PAIR)],
    "art": lambda: [_fixture("art.jsonl"), _fixture("art-logged.jsonl"), _fixture("art.parquet")],
    "skyrl": lambda: [_fixture("skyrl-dump.jsonl"), _lines(SKYRL)],
    "verl": lambda: [_fixture("verl-dump.jsonl"), *map(_lines, VERL)],
    "trl": lambda: [_fixture("trl-completions.parquet"), *map(_lines, TRL)],
    "parquet": lambda: [_fixture("art.parquet"), _fixture("trl-completions.parquet")],
    "otlp": lambda: [_lines(BATCH, LOGS), _lines(SPANS)],
    "langfuse": lambda: [_fixture("langfuse-api.jsonl.gz"), _fixture("langfuse-otlp.json.gz")],
    "mlflow": lambda: [_fixture("mlflow-trace.json.gz"), _fixture("mlflow-row.jsonl.gz")],
    "weave": lambda: [_fixture("weave-calls.jsonl.gz"), _fixture("weave-twice.jsonl.gz")],
    "braintrust": lambda: [_fixture("braintrust-spans.jsonl.gz"), _fixture("braintrust-langchain.json.gz")],
    "phoenix": lambda: [_fixture(f"phoenix-{name}.gz") for name in ("spans.jsonl", "frame.jsonl", "otlpv1.json")],
    "langsmith": lambda: [_lines(RUN, TOOL), _lines({"runs": [RUN, TOOL]})],
    "openai-agents": lambda: [_lines(*json.loads(_fixture("openai-agents.json.gz")))],
    "llm": lambda: [_database("llm-0.26.db.gz"), _database("llm-0.36.db.gz")],
    "agentworldbench": lambda: [_lines(WORLD)],
    "atif": lambda: [_lines(ATIF), _fixture("atif.jsonl")],
    "verifiers": lambda: [_lines(ROW), _fixture("verifiers-traces.jsonl")],
    "openai-chat": lambda: [_lines({"messages": CHAT, "metadata": {"user": 7}})],
    "androidworld": lambda: [gzip.compress(pickle.dumps([EPISODE]), 1)],
    "osworld": lambda: [_lines(*SCREENS)],
}


def seeds_of(reader: str) -> list[bytes]:
    """Good files of a format; of all formats where it has none of its own."""
    made = _MADE.get(reader)
    return made() if made is not None else [one for many in _MADE.values() for one in many()]
