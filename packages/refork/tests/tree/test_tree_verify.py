from __future__ import annotations

import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from refork.policies.base import Request, Sampling, sample_all
from refork.policies.scripted import ScriptedPolicy
from refork.sampling.noise import NoiseKey
from refork.tree import ForkRecord, NewNode, Producer, Score, Tree
from tree.tree_builders import small, step

TABLE = {"": {"a": 0.5, "b": 0.5}, "a": {"b": 0.7, "": 0.3}, "b": {"a": 0.4, "b": 0.5, "": 0.1}}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tree.db"


def spoil(file, sql: str, *parameters) -> None:
    with sqlite3.connect(file) as raw:
        raw.execute(sql, parameters)
    raw.close()


def findings(file, *arguments, **options):
    with Tree.open(file, "r") as tree:
        return list(tree.verify(*arguments, **options))


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE nodes SET key = 'other' WHERE row = 2", "digest of its place"),
        ("UPDATE nodes SET depth = 7 WHERE row = 2", "depth is 7"),
        ("UPDATE nodes SET keep = 99 WHERE row = 6", "keep is 99"),
        ("UPDATE nodes SET logprobs = x'00000000' WHERE row = 2", "logprobs has 1 entries for 5 tokens"),
        (
            "UPDATE nodes SET logprobs = x'0000c07f0000000000000000000000000000000000' WHERE row = 2",
            "entries",
        ),
        (
            "UPDATE nodes SET logprobs = x'0000c07f00000000000000000000000000000000' WHERE row = 2",
            "not a number",
        ),
        ("UPDATE nodes SET text = 'longer' WHERE row = 1", "offsets do not fit"),
        ("UPDATE nodes SET extra = '{' WHERE row = 1", "extra is not JSON"),
        ("UPDATE nodes SET parent = 99 WHERE row = 6", "does not exist"),
        ("UPDATE blobs SET data = x'00'", "not what its digest says"),
        ("UPDATE scores SET value = NULL", "neither one value nor one per token"),
        (
            "UPDATE scores SET value = NULL, array = x'0000000000000000'",
            "neither one value nor one per token",
        ),
        ("UPDATE forks SET token = 99", "beyond this step"),
        ("UPDATE producers SET retired_at = 1 WHERE row = 1", "one that it read is retired"),
    ],
)
def test_what_another_program_spoilt_is_found(file, sql, what):
    with Tree.open(file) as tree:
        root, *_ = small(tree)
        tree.put_blob(b"state")
        judge = tree.add_producer(Producer("judge"))
        tree.add_producer(Producer("reader", reads=(judge,)))
        tree.add_scores([Score(root.id, "v", 1.0, judge)])
        tree.begin_fork(ForkRecord("f", root.id, 2, None, {}, {}, None, 0, 0))
        assert list(tree.verify()) == []
    spoil(file, sql)
    found = findings(file)
    assert any(what in f.what for f in found), found
    assert all(f.severity == "error" for f in found)


def test_an_index_that_lost_a_row_is_found(file):
    with Tree.open(file) as tree:
        small(tree)
    with sqlite3.connect(file) as raw:
        size = raw.execute("PRAGMA page_size").fetchone()[0]
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'nodes_parent'").fetchone()
    raw.close()
    data = bytearray(file.read_bytes())
    data[page * size - 1] ^= 1  # the row to which the first entry leads
    file.write_bytes(data)
    assert any("damaged" in f.what for f in findings(file))


def grown(file, policy: ScriptedPolicy, count: int = 20) -> None:
    """A prompt and sampled turns, each with a second turn forked inside the first."""
    settings = Sampling(max_tokens=8)
    with Tree.open(file) as tree:
        rendered = policy.render([], np.zeros(0, np.int32), [{"role": "user", "content": "go"}])
        root = tree.append(NewNode(kind="task", key="t", text="go", tokens=rendered.tokens))[0]

        def draft(prefix, parent, keep, noise, mid_turn):
            said = sample_all(policy, [Request(prefix, noise, mid_turn=mid_turn)], settings)[0]
            return NewNode(
                kind="action",
                parent=parent,
                keep=keep,
                key=f"{noise.stream}/{noise.draw}",
                text=said.text,
                tokens=said.tokens,
                offsets=said.offsets,
                logprobs=said.logprobs,
                logprobs_t1=said.logprobs_t1,
                policy=policy.card.name,
                weights=policy.card.weights,
                settings=settings.to_json(),
                noise=noise,
                finish=said.finish,
            )

        for i in range(count):
            node = tree.append(draft(root.tokens, root.id, None, NoiseKey(0, 1, i), mid_turn=False))[0]
            cut = tree.path(tree.at(node, 1))
            tree.append(draft(cut.tokens, node.id, 1, NoiseKey(0, 2, i), mid_turn=True))


def test_what_a_policy_wrote_it_derives_again(file):
    policy = ScriptedPolicy.from_chain(TABLE)
    grown(file, policy)
    assert findings(file, {"chain": policy}, redraw=True) == []


def test_other_weights_are_named_once(file):
    grown(file, ScriptedPolicy.from_chain(TABLE))
    other = ScriptedPolicy.from_chain(TABLE | {"a": {"b": 0.2, "": 0.8}})
    found = findings(file, {"chain": other}, redraw=True)
    assert [f.cause for f in found] == ["other weights"]
    assert "weights" in found[0].what


def unsigned(policy: ScriptedPolicy) -> ScriptedPolicy:
    """The same policy without digests, as a server that does not tell them."""
    policy._card = replace(policy.card, weights=None)
    return policy


def test_log_probs_of_unsigned_weights_are_compared(file):
    grown(file, ScriptedPolicy.from_chain(TABLE))
    other = unsigned(ScriptedPolicy.from_chain(TABLE | {"": {"a": 0.4, "b": 0.6}}))
    found = findings(file, {"chain": other})
    assert found
    assert {(f.severity, f.token, f.cause) for f in found} == {("error", 0, "other weights")}
    assert findings(file, {"chain": other}, tolerance=1.0) == []
    assert findings(file, {"chain": unsigned(ScriptedPolicy.from_chain(TABLE))}) == []


def test_a_changed_log_prob_is_found_at_its_token(file):
    policy = ScriptedPolicy.from_chain(TABLE)
    grown(file, policy)
    with Tree.open(file, "r") as tree:
        node = next(n for n in tree.walk() if n.kind == "action" and n.length >= 2)
    values = node.logprobs_t1.copy()
    values[1] -= 0.01
    spoil(file, "UPDATE nodes SET logprobs_t1 = ? WHERE id = ?", values.tobytes(), bytes.fromhex(node.id))
    mark, found = findings(file, {"chain": policy})
    assert "seal" in mark.what
    assert (found.node, found.token) == (node.id, 1)
    assert found.cause.startswith("template")


def test_changed_tokens_are_found(file):
    policy = ScriptedPolicy.from_chain(TABLE)
    grown(file, policy)
    a, b = policy.encode("a")[0], policy.encode("b")[0]
    with Tree.open(file, "r") as tree:
        node = next(n for n in tree.leaves() if n.length >= 2 and n.tokens[0] == a)
    tokens = node.tokens.copy()
    tokens[0] = b
    spoil(file, "UPDATE nodes SET tokens = ? WHERE id = ?", tokens.tobytes(), bytes.fromhex(node.id))
    found = findings(file, {"chain": policy}, redraw=True)
    assert {f.node for f in found} == {node.id}
    mark, text, *_, redrawn = found
    assert "seal" in mark.what
    assert (text.token, text.cause) == (0, "other tokenizer")
    assert redrawn.what == "its noise key draws other tokens"
    assert redrawn.token == 0
    tokens[0] = 10**6
    spoil(file, "UPDATE nodes SET tokens = ? WHERE id = ?", tokens.tobytes(), bytes.fromhex(node.id))
    assert any("outside the vocabulary" in f.what for f in findings(file, {"chain": _unscored(policy)}))


def _unscored(policy: ScriptedPolicy) -> ScriptedPolicy:
    policy._card = replace(policy.card, capabilities=frozenset({"tokens"}))
    return policy


def test_what_a_policy_cannot_derive_is_a_warning(file):
    policy = ScriptedPolicy.from_chain(TABLE)
    grown(file, policy)
    found = findings(file, {"chain": _unscored(policy)}, redraw=True)
    assert {f.severity for f in found} == {"warning"}
    assert any("cannot score" in f.what for f in found)
    assert any("does not honour noise keys" in f.what for f in found)


def test_a_prefix_without_tokens_is_a_warning(file):
    policy = ScriptedPolicy.from_chain(TABLE)
    with Tree.open(file) as tree:
        root = tree.append(NewNode(kind="task", text="no ids"))[0]
        tree.append(step("action", "ab", root.id, tokens=policy.encode("ab"), policy="chain"))
    (found,) = findings(file, {"chain": policy})
    assert found.severity == "warning"
    assert "cannot be derived" in found.what


def test_a_prompt_that_its_tokens_do_not_hold(file):
    policy = ScriptedPolicy.from_chain(TABLE)
    with Tree.open(file) as tree:
        tree.append(NewNode(kind="task", text="ab\nb", tokens=policy.encode("abxb")))
        tree.append(NewNode(kind="task", text="ba", tokens=policy.encode("ab")))
    (found,) = findings(file, {"chain": policy})
    assert found.cause == "template"


def test_retokenised_text_is_named_as_the_cause(file):
    table = {"": {"a": 0.25, "b": 0.25, "ab": 0.5}, "a": {"b": 1.0}, "b": {"": 1.0}, "ab": {"": 1.0}}
    policy = unsigned(ScriptedPolicy.from_chain(table))
    prompt = policy.render([], np.zeros(0, np.int32), [{"role": "user", "content": "go"}]).tokens
    apart = np.concatenate([policy.encode("a"), policy.encode("b")])
    assert len(policy.encode("ab")) == 1
    given = {"tokens": apart, "offsets": np.array([1, 2], np.int32), "policy": "chain"}
    lied = np.log(np.array([0.5, 0.5], np.float32))
    with Tree.open(file) as tree:
        root = tree.append(NewNode(kind="task", text="go", tokens=prompt))[0]
        tree.append(NewNode(kind="action", parent=root.id, text="ab", logprobs_t1=lied, **given))
    (found,) = findings(file, {"chain": policy})
    assert found.token == 0
    assert found.cause.startswith("retokenisation")


def test_a_turn_cut_by_its_own_limit_is_drawn_to_that_limit(file):
    policy = ScriptedPolicy.from_chain({"": {"a": 1.0}, "a": {"a": 1.0}})
    prompt = policy.render([], np.zeros(0, np.int32), [{"role": "user", "content": "go"}]).tokens
    settings, noise = Sampling(max_tokens=9), NoiseKey(0, 0, 0)
    said = sample_all(policy, [Request(prompt, noise, max_tokens=4)], settings)[0]
    assert (len(said.tokens), said.finish) == (4, "length")
    with Tree.open(file) as tree:
        root = tree.append(NewNode(kind="task", text="go", tokens=prompt))[0]
        sampled = {"policy": "chain", "settings": settings.to_json(), "noise": noise, "finish": said.finish}
        tree.append(NewNode(kind="action", parent=root.id, text=said.text, tokens=said.tokens, **sampled))
    assert findings(file, {"chain": policy}, redraw=True) == []
