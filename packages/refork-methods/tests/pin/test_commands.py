"""``refork pin``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork_methods.pin import PinnedBuffer, read_policy
from refork_methods.pin.commands import app

RUN = CliRunner()


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("rules:\n  - {id: spend, text: At most 100 USD., tool: purchase}\n")
    return path


def test_show_prints_the_block(policy) -> None:
    buffer = PinnedBuffer(read_policy(policy))
    assert buffer.text in RUN.invoke(app, ["show", str(policy)]).output
    data = json.loads(RUN.invoke(app, ["show", str(policy), "--json"]).output)
    assert (data["sha256"], data["text"]) == (buffer.digest, buffer.text)
    assert "operator" not in RUN.invoke(app, ["show", str(policy), "--plain"]).output


def test_check_says_which_call_lost_a_rule(policy, tmp_path) -> None:
    hello = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": hello}) + "\n")
    lost = RUN.invoke(app, ["check", str(log), "--policy", str(policy)])
    assert lost.exit_code == 1
    assert "missing spend" in lost.output
    assert (
        json.loads(RUN.invoke(app, ["check", str(log), "--policy", str(policy), "--json"]).output)["calls"]
        == 1
    )
    pinned = PinnedBuffer(read_policy(policy)).apply(hello)
    log.write_text(json.dumps({"messages": pinned}) + "\n")
    assert RUN.invoke(app, ["check", str(log), "--policy", str(policy)]).exit_code == 0


def test_signed_changes_are_applied_and_need_the_key(policy, tmp_path) -> None:
    key, changes = tmp_path / "key", tmp_path / "changes.jsonl"
    key.write_text("k" * 32)
    options = ["--policy", str(policy), "--key-file", str(key)]
    signed = RUN.invoke(app, ["sign", "replace", "spend", "--text", "At most 500 USD.", *options])
    changes.write_text(signed.output)
    added = RUN.invoke(
        app, ["sign", "add", "mail", "--text", "No mail.", *options, "--changes", str(changes)]
    )
    changes.write_text(signed.output + added.output)
    show = ["show", str(policy), "--changes", str(changes)]
    output = RUN.invoke(app, [*show, "--key-file", str(key)]).output
    assert "[spend v2] At most 500 USD." in output
    assert "[mail v1] No mail." in output
    assert isinstance(RUN.invoke(app, show).exception, BadInput)
    gone = RUN.invoke(app, ["sign", "remove", "spend", *options])
    assert json.loads(gone.output)["constraint"]["text"] == "At most 100 USD."
    assert isinstance(RUN.invoke(app, ["sign", "add", "x", *options]).exception, BadInput)


def test_a_replaced_rule_with_a_checker_is_pointed_out(tmp_path) -> None:
    policy, key = tmp_path / "policy.yaml", tmp_path / "key"
    key.write_text("k" * 32)
    policy.write_text(
        "rules:\n  - {id: spend, text: At most 100 USD.,"
        " checker: {tool: buy, forbid: {amount: {argument: a, above: '100'}}}}\n"
    )
    options = ["--policy", str(policy), "--key-file", str(key)]
    signed = RUN.invoke(app, ["sign", "replace", "spend", "--text", "At most 5 USD.", *options])
    assert "the rule's checker stays as it was" in signed.stderr
    assert json.loads(signed.stdout)["constraint"]["version"] == 2


def test_bad_files_are_named(policy, tmp_path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    done = RUN.invoke(app, ["show", str(policy), "--changes", str(tmp_path / "none"), "--key-file", str(key)])
    assert isinstance(done.exception, BadInput)
    policy.write_text("rules: [{id: a, text: x, checker: {tool: t}}]")
    assert "rule 1, checker" in str(RUN.invoke(app, ["show", str(policy)]).exception)
