"""Import, export, import again: the same tree, for every format that is written."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.formats import reader_for, writer_for
from refork.plain import canonical
from refork.tree import Tree
from support.told import told

HERE = Path(__file__).parent / "fixtures"
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)
REST = st.dictionaries(st.sampled_from(["id", "metadata", "x", "weight"]), PLAIN, max_size=3)


def imported(path: Path, form: str) -> Tree:
    tree = Tree.memory()
    tree.load(reader_for(path, form).read(path))
    return tree


def exported(tree: Tree, form: str, path: Path) -> int:
    out = io.StringIO()
    count = writer_for(form).write(tree.records(), out)
    path.write_text(out.getvalue(), encoding="utf-8")
    return count


def check(lines: list[object], form: str, folder: Path) -> None:
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    first.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    before = imported(first, form)
    exported(before, form, second)
    after = imported(second, form)
    assert told(after) == told(before)
    if form == "openai-chat":
        # Nothing is put in order there, so the lines are the same too, and with them all ids.
        again = [json.loads(line) for line in second.read_text("utf-8").strip("\n").split("\n")]
        assert sorted(map(canonical, again)) == sorted(map(canonical, lines))
        assert {n.id for n in after.walk()} == {n.id for n in before.walk()}


CALL = st.builds(
    lambda name, args: {
        "id": "c",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(args)},
    },
    st.sampled_from(["look", "go"]),
    st.dictionaries(st.sampled_from("ab"), PLAIN, max_size=2),
)
SHOWN = st.builds(
    lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "system"]), WORDS
)
SAID = st.builds(
    lambda text, calls: {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {}),
    WORDS | st.none(),
    st.lists(CALL, max_size=1),
)
CHAT = st.builds(
    lambda messages, rest, tools: {
        "messages": messages,
        **rest,
        **({"tools": tools} if tools is not None else {}),
    },
    st.lists(SHOWN | SAID, min_size=1, max_size=6),
    REST,
    st.none() | st.just([]) | st.just([{"type": "function", "function": {"name": "look"}}]),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(CHAT, min_size=1, max_size=3))
def test_openai_chats(tmp_path_factory, lines):
    check(lines, "openai-chat", tmp_path_factory.mktemp("chat"))


def agent_step(text, why, calls, results, more):
    """An agent's step of ATIF."""
    step = {"source": "agent", "message": text} | ({"reasoning_content": why} if why else {}) | more
    named = [{"tool_call_id": f"c{n}", "function_name": "f", "arguments": a} for n, a in enumerate(calls)]
    step |= {"tool_calls": named} if named else {}
    return step | ({"observation": {"results": [{"content": r} for r in results]}} if results else {})


COUNTS = {"prompt_tokens": 3, "completion_tokens": 1, "cost_usd": 0.25}
MORE = [
    {},
    {"model_name": "m", "timestamp": "2026-01-01T00:00:00Z"},
    {"metrics": COUNTS | {"completion_token_ids": [7], "logprobs": [-0.5]}},
    {"extra": {"k": 1}, "llm_call_count": 2, "is_copied_context": False},
    {"is_copied_context": True, "timestamp": "t"},
]
ARGUMENTS = st.dictionaries(st.sampled_from("ab"), PLAIN, max_size=2)
SOURCES = st.sampled_from(["user", "system"])
STEP = st.builds(lambda source, text: {"source": source, "message": text}, SOURCES, WORDS) | st.builds(
    agent_step,
    WORDS,
    WORDS,
    st.lists(ARGUMENTS, max_size=2),
    st.lists(WORDS, max_size=2),
    st.sampled_from(MORE),
)
ATIF = st.builds(
    lambda steps, rest, version: {
        "schema_version": f"ATIF-v1.{version}",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [step | {"step_id": n} for n, step in enumerate(steps, 1)],
        **rest,
    },
    st.lists(STEP, min_size=1, max_size=5),
    REST,
    st.integers(0, 7),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(ATIF, min_size=1, max_size=2))
def test_atif(tmp_path_factory, lines):
    check(lines, "atif", tmp_path_factory.mktemp("atif"))


ANSWER = st.builds(lambda text: {"role": "assistant", "content": text}, WORDS)
ROW = st.builds(
    lambda prompt, completion, reward, rest: {
        "example_id": 1, "prompt": prompt, "completion": completion, "reward": reward, "task": "t", **rest
    },
    st.lists(SHOWN, min_size=1, max_size=3) | WORDS,
    st.lists(ANSWER | SHOWN, min_size=1, max_size=4),
    st.floats(-5, 5),
    REST,
)  # fmt: skip


@st.composite
def traces(draw):
    """A message graph; with token ids for all nodes or for none."""
    count = draw(st.integers(1, 6))
    ids = draw(st.booleans())
    nodes = []
    for number in range(count):
        sampled = draw(st.booleans())
        parent = None if number == 0 else draw(st.none() | st.integers(0, number - 1))
        role = "assistant" if sampled else draw(st.sampled_from(["user", "system"]))
        node = {"parent": parent, "message": {"role": role, "content": draw(WORDS)}, "sampled": sampled}
        if ids:
            lead, size, trail = draw(st.integers(0, 2)), draw(st.integers(1, 3)), draw(st.integers(0, 1))
            mask = [False] * lead + [sampled] * size + [False] * trail
            node |= {
                "token_ids": draw(st.lists(st.integers(0, 9), min_size=len(mask), max_size=len(mask))),
                "mask": mask,
            }
            node |= {"logprobs": [-0.5] * size if sampled else []}
        nodes.append(node | {"timestamp": 1.5})
    rewards = {"right": {"score": draw(st.floats(0, 1)), "weight": 0.5}, "late": None}
    return {
        "version": 1,
        "id": "t",
        "task": {"type": "T", "data": {}},
        "nodes": nodes,
        "rewards": rewards,
        "errors": [],
    }


@settings(max_examples=20, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=2) | st.lists(traces(), min_size=1, max_size=2))
def test_verifiers(tmp_path_factory, lines):
    check(lines, "verifiers", tmp_path_factory.mktemp("verifiers"))


def test_a_trace_is_written_as_it_was_read(tmp_path):
    """Every field that the package wrote comes back, token ids, masks and log-probs included."""
    source = HERE / "verifiers-traces.jsonl"
    exported(imported(source, "verifiers"), "verifiers", tmp_path / "out.jsonl")
    for old, new in zip(
        source.read_text().splitlines(), (tmp_path / "out.jsonl").read_text().strip().split("\n"), strict=True
    ):
        before, after = json.loads(old), json.loads(new)
        for body in (before, after):
            for node in body["nodes"]:
                node["message"] = {k: v for k, v in node["message"].items() if v is not None}
                for call in node["message"].get("tool_calls", ()):
                    call.pop("type", None), call.pop("namespace", None)
                for name in ("token_ids", "mask", "logprobs"):
                    node.setdefault(name, [])
        assert after == before


@pytest.mark.parametrize("form", ["openai-chat", "verifiers", "atif"])
def test_walks_of_other_formats_are_written_and_read_again(form, tmp_path):
    source = tmp_path / "log.json"
    source.write_bytes(gzip.decompress((HERE / "inspect.json.gz").read_bytes()))
    tree = imported(source, "inspect")
    assert exported(tree, form, tmp_path / "out.jsonl") == 4
    again = imported(tmp_path / "out.jsonl", form)
    said = [
        [s.text for s in trajectory if s.node.kind == "action"] for trajectory in tree.paths(tree.leaves())
    ]
    assert sorted(
        [s.text for s in trajectory if s.node.kind == "action"] for trajectory in again.paths(again.leaves())
    ) == sorted(said)
