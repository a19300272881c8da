"""Session files of command lines for coding, as Claude Code, Codex and OpenCode write them."""

from __future__ import annotations

import gzip
import json

import pytest

from refork.formats import Redactor, import_file
from refork.formats.base import Head
from refork.formats.claude_code import ClaudeCode
from refork.formats.codex import Codex
from refork.formats.opencode import OpenCode
from refork.tree import Tree
from support.foreign_logs import FIXTURES, imported, plain, unpacked, whats

READERS = {"claude-code": ClaudeCode, "codex": Codex, "opencode": OpenCode}
FILES = (
    "claude-code-pair.jsonl", "claude-code-agent.jsonl", "claude-code-compacted.jsonl",
    "claude-code-failed.jsonl", "codex-compacted.jsonl", "codex-failed.jsonl", "opencode-compacted.json",
    "opencode-agent.json", "opencode-failed.json",
)  # fmt: skip
REQUESTS = json.loads(gzip.decompress((FIXTURES / "coding-requests.json.gz").read_bytes()))


def reader_of(name):
    return READERS[name.rsplit("-", 1)[0]]()


def read(name, folder):
    unpacked(name, folder)
    return imported(reader_of(name), folder / name)


def lines_of(name):
    return [json.loads(line) for line in gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()).splitlines()]


def of_lines(name, lines, folder):
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return imported(reader_of(name), file)


def actions(tree):
    return [step.node for path in tree.paths(tree.leaves()) for step in path if step.node.kind == "action"]


def contexts(path):
    """Of each action of a path what the model was shown, as the requests of the fixture are kept."""
    shown = []
    for step in path:
        node = step.node
        messages = node.extra.get("messages") or ([node.message] if node.message else [])
        if node.kind == "rewrite":
            shown = []
        if node.kind == "action" and node.error is None:
            yield shown, node
        shown = [*shown, *messages]


def told(messages):
    """Who said what and called which tools; neighbours of one speaker are one, as they are sent."""
    found = []
    for message in messages:
        role, text, calls = message
        text = "".join(text.split())  # how parts are joined is nobody's
        if role != "tool" and found and found[-1][0] == role:
            found[-1] = [role, found[-1][1] + text, found[-1][2] + calls]
        else:
            found.append([role, text, calls])
    return found


def same(shown, asked):
    """Whether two contexts are one, as far as the fixtures hold their texts."""
    ends = [(one[1] + "[...]").find("[...]") for one in (*shown, *asked)]
    cut = [min(pair) for pair in zip(ends, ends[len(shown) :], strict=False)]
    parts = zip(shown, asked, cut, strict=True)
    return all((a[0], a[1][:end], a[2]) == (b[0], b[1][:end], b[2]) for a, b, end in parts)


def as_asked(messages):
    kept = [message for message in messages if message["role"] != "system"]
    calls = [[call["function"]["name"] for call in one.get("tool_calls") or []] for one in kept]
    return told([one["role"], one["content"] or "", names] for one, names in zip(kept, calls, strict=True))


@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_model_was_shown_is_what_it_was_asked(name, tmp_path):
    tree, _ = read(name, tmp_path)
    (path,) = tree.paths(tree.leaves())
    asked = [told(request) for request in REQUESTS[name]]
    for shown, node in contexts(path):
        # A summary was asked for with words that no session has.
        if "summary" not in node.text:
            assert same(as_asked(shown), asked.pop(0)), node.text
        elif name.startswith("codex"):
            # There the words are the last message.
            assert same(as_asked(shown), asked.pop(0)[:-1])
    assert asked == []


@pytest.mark.parametrize("name", FILES)
def test_a_session_is_seen_by_its_content_and_nothing_is_skipped(name, tmp_path):
    tree, remarks = read(name, tmp_path)
    assert whats(remarks, "skipped") == []
    assert any("definitions of tools" in what for what in whats(remarks, "lost"))
    head = Head.of(tmp_path / name)
    assert [kind for kind, reader in READERS.items() if reader().sniff(head)] == [reader_of(name).name]
    assert all(node.extra["origin"]["version"] for node in tree.tasks())
    # Nothing in them is a secret; names like those of sessions on the web must not take anything out.
    with Tree.memory() as other:
        found = import_file(other, tmp_path / name, reader_of(name), redactor=Redactor())
        assert found.count("redacted") == 0
    sessions = [node for node in actions(tree) if "session" in node.extra]
    assert len(sessions) == 1  # with the first answer, which does not change when the session goes on


@pytest.mark.parametrize(("name", "error"), [("claude-code", 1), ("codex", 1), ("opencode", 1)])
def test_a_refusal_of_the_provider_is_an_answer_with_its_error(name, error, tmp_path):
    name += "-failed.json" + ("" if name == "opencode" else "l")
    tree, _ = read(name, tmp_path)
    (node,) = actions(tree)
    assert "no such model" in node.error
    assert (node.finish, node.text, node.message) == ("error", "", None)
    (root,) = tree.tasks()
    assert "Errand 4: visit all." in root.text


def test_calls_at_once_are_one_turn_with_their_results_beside_one_another(tmp_path):
    tree, _ = read("claude-code-pair.jsonl", tmp_path)
    (path,) = tree.paths(tree.leaves())
    kinds = [step.node.kind for step in path]
    assert kinds == ["task", *["action", "observation"] * 3, "action"]
    failed, both = path.steps[2].node, path.steps[4].node
    assert (failed.message["content"], failed.message["is_error"]) == ("Exit code 3\nno such place", True)
    assert [one["content"] for one in both.extra["messages"]] == ["the north is quiet", "the south is quiet"]
    assert [one["result"]["stdout"] for one in both.extra["tool_spans"]] == [
        "the north is quiet",
        "the south is quiet",
    ]
    asked = path.steps[3].node
    assert asked.text.startswith("Two at once.\n")
    assert [call["id"] for call in asked.message["tool_calls"]] == [
        one["tool_call_id"] for one in both.extra["messages"]
    ]
    assert (asked.policy, asked.cost.tokens_in, asked.cost.tokens_out) == ("claude-opus-4-8", 7, 3)
    assert asked.extra["claude_code"]["records"][0]["uuid"]


@pytest.mark.parametrize(
    ("name", "agent"), [("claude-code-agent.jsonl", "general-purpose"), ("opencode-agent.json", "general")]
)
def test_a_sub_agent_is_a_trajectory_of_its_own_origin(name, agent, tmp_path):
    tree, _ = read(name, tmp_path)
    (root,) = tree.tasks()
    assert root.extra["origin"]["agent"] == agent
    assert root.text == "Errand 7 for the Deputy: visit all"
    if name.startswith("opencode"):
        above, _ = read("opencode-compacted.json", tmp_path)
        (path,) = above.paths(above.leaves())
        told = [one for step in path for one in step.node.extra.get("tool_spans", [])]
        (answer, *_) = actions(tree)
        assert told[0]["state"]["metadata"]["agent"] == answer.extra["session"]["id"]


def test_sidechains_in_the_file_of_their_session_are_read_too(tmp_path):
    both = [*lines_of("claude-code-compacted.jsonl"), *lines_of("claude-code-agent.jsonl")]
    tree, _ = of_lines("claude-code-x", both, tmp_path)
    agents = sorted(str(node.extra["origin"].get("agent")) for node in tree.tasks())
    assert agents == ["None", "general-purpose"]


@pytest.mark.parametrize(
    "name", ["claude-code-compacted.jsonl", "codex-compacted.jsonl", "opencode-compacted.json"]
)
def test_where_a_session_was_compacted_is_a_rewrite(name, tmp_path):
    tree, _ = read(name, tmp_path)
    (path,) = tree.paths(tree.leaves())
    (at,) = [at for at, step in enumerate(path.steps) if step.node.kind == "rewrite"]
    assert path.steps[at - 1].node.kind == "action"
    assert path.steps[at + 1].node.kind == "action"
    assert "quiet" not in path.steps[at].text  # what tools said is in the summary, if at all


def test_tokens_and_money_are_each_answers_own(tmp_path):
    tree, _ = read("codex-compacted.jsonl", tmp_path)
    costs = [(node.cost.tokens_in, node.cost.tokens_out) for node in actions(tree)]
    assert costs.count((90000, 3)) == 1
    assert set(costs) == {(7, 3), (90000, 3)}
    body = json.loads(gzip.decompress((FIXTURES / "opencode-compacted.json.gz").read_bytes()))
    tree, _ = read("opencode-compacted.json", tmp_path)
    # The session's own sums.
    assert sum(node.cost.money for node in actions(tree)) == pytest.approx(body["info"]["cost"])
    assert sum(node.cost.tokens_in for node in actions(tree)) == body["info"]["tokens"]["input"]


def test_what_was_taken_back_is_a_branch(tmp_path):
    lines = lines_of("claude-code-pair.jsonl")
    first = next(line for line in lines if line["type"] == "user")
    answer = next(line for line in lines if line["type"] == "assistant")
    again = first | {
        "uuid": "u2",
        "message": {"role": "user", "content": "Stop."},
        "parentUuid": answer["uuid"],
    }
    said = {"id": "m2", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "stopped"}]}
    other = answer | {"uuid": "a2", "parentUuid": "u2", "message": said}
    tree, remarks = of_lines("claude-code-x", [*lines, again, other], tmp_path)
    assert whats(remarks, "skipped") == []
    one, two = tree.paths(tree.leaves())
    assert one.steps[1].node.id == two.steps[1].node.id
    assert sorted([one.leaf.text, two.leaf.text])[1] == "stopped"
    # Alone each is as long as it was.
    assert sorted([len(one), len(two)]) == [4, 8]


@pytest.mark.parametrize("name", ["claude-code-compacted.jsonl", "codex-compacted.jsonl"])
def test_a_session_that_goes_on_is_imported_on(name, tmp_path):
    lines = lines_of(name)
    said = [at for at, line in enumerate(lines) if line["type"] in ("assistant", "token_usage_record")]
    file = tmp_path / "session.jsonl"
    with Tree.memory() as tree:
        for end in (said[2] + 1, said[-3] + 1, len(lines)):
            file.write_text("".join(json.dumps(line) + "\n" for line in lines[:end]))
            records = [
                one for one in reader_of(name).read(file) if hasattr(one, "kind") and hasattr(one, "key")
            ]
            tree.load(records)
        whole, _ = read(name, tmp_path)
        assert {node["id"] for node in plain(whole)[0]} <= {node["id"] for node in plain(tree)[0]}


def test_a_record_that_cannot_be_read_is_skipped_and_the_rest_is_not(tmp_path):
    lines = lines_of("claude-code-pair.jsonl")
    at = next(at for at, line in enumerate(lines) if line["type"] == "assistant")
    lines[at] = lines[at] | {"message": {"role": "assistant", "content": 5}}
    tree, remarks = of_lines("claude-code-x", [*lines, {"uuid": "x"}], tmp_path)
    assert whats(remarks, "skipped") == [
        "the message of this assistant record cannot be read", "this is no record of a session",
    ]  # fmt: skip
    (path,) = tree.paths(tree.leaves())
    assert path.leaf.text.startswith("errand 1 is done")
    assert path.root.text.startswith("Errand 1")

    lines = lines_of("codex-compacted.jsonl")
    at = next(at for at, line in enumerate(lines) if line["payload"].get("type") == "function_call")
    lines[at]["payload"].pop("call_id")
    tree, remarks = of_lines("codex-x", [*lines, {"type": "response_item"}], tmp_path)
    assert whats(remarks, "skipped") == ["this call has no id", "this is no line of a session"]
    assert sum("Two at once." in node.text for node in actions(tree)) == 2

    body = json.loads(gzip.decompress((FIXTURES / "opencode-agent.json.gz").read_bytes()))
    body["messages"][1] = {"info": {"role": "assistant"}}
    (tmp_path / "session.json").write_text(json.dumps(body))
    tree, remarks = imported(OpenCode(), tmp_path / "session.json")
    assert whats(remarks, "skipped") == ["this is no message of a session"]
    assert len(actions(tree)) == 3


def test_older_sessions_of_codex_are_read(tmp_path):
    """Without records of usage, and with a summary alone where they were compacted."""
    lines = [line for line in lines_of("codex-compacted.jsonl") if line["type"] != "token_usage_record"]
    for line in lines:
        line["payload"].pop("replacement_history", None)
    tree, remarks = of_lines("codex-x", lines, tmp_path)
    newer, _ = read("codex-compacted.jsonl", tmp_path)
    assert [(n.text, n.cost.tokens_in) for n in actions(tree)] == [
        (n.text, n.cost.tokens_in) for n in actions(newer)
    ]
    assert any("those of the user stand for them" in what for what in whats(remarks, "lost"))
    (path,) = tree.paths(tree.leaves())
    (rewrite,) = [step.node for step in path if step.node.kind == "rewrite"]
    assert "a summary" in rewrite.text


def test_what_no_model_answered_is_said(tmp_path):
    first = [line for line in lines_of("claude-code-pair.jsonl") if line["type"] == "user"][:1]
    tree, remarks = of_lines("claude-code-x", first, tmp_path)
    assert whats(remarks, "skipped") == ["a conversation to which no model answered"]
    assert list(tree.walk()) == []
    first = lines_of("codex-compacted.jsonl")[:8]
    _, remarks = of_lines("codex-x", first, tmp_path)
    assert whats(remarks, "skipped") == ["a session to which no model answered"]
