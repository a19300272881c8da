"""The record: what was served is on the tree, as one can fork it, before the client has it whole."""

import asyncio
import logging
import threading

import numpy as np
import pytest

from refork.errors import DiskFull
from refork.forking.context import conversation
from refork.policies.base import PolicyCard, Sampling
from refork.sampling.noise import NoiseKey
from refork.serve.exchange import Choice, Exchange
from refork.serve.exchange_nodes import Conversations, nodes_of
from refork.serve.metrics import Metrics
from refork.serve.record import ExchangeRecorder
from refork.serve.refusal import Refused
from refork.tree.tree import Tree
from refork.types import token_array

CARD = PolicyCard("tiny", "local", "w" * 64, "t" * 64, 32, frozenset({"tokens", "paired"}))


def choice(number=0, **change):
    plain = {
        "text": "ab", "finish": "stop", "tokens": token_array([5, 6, 0]), "offsets": token_array([1, 2, 2]),
        "logprobs": np.array([-1.0, -0.5, -0.1], np.float32), "noise": NoiseKey(3, 9, number),
        "message": {"role": "assistant", "content": "ab"},
    }  # fmt: skip
    return Choice(**plain | change)


def exchange(name="chatcmpl-1", *, said="hi", before=(), prompt=(1, 2), **change):
    plain = {
        "operation": "chat", "model": "m", "choices": (choice(),),
        "prompt": None if prompt is None else token_array(prompt),
        "text": "hi\n", "messages": (*before, {"role": "user", "content": said}), "card": CARD,
        "settings": Sampling(temperature=0.5), "seed": 3, "holder": "key-1",
    }  # fmt: skip
    return Exchange(name, **plain | change)


async def put(recorder, *exchanges):
    await asyncio.gather(*(recorder.exchange(one) for one in exchanges))


@pytest.fixture
def recorded(tmp_path):
    """Records exchanges one after the other; gives the tree."""
    made = []

    def record(*exchanges):
        tree = Tree.open(tmp_path / "served.db")
        recorder = ExchangeRecorder(tree)
        for one in exchanges:
            asyncio.run(put(recorder, one))
        recorder.close()
        assert recorder.failed == 0
        made.append(tree)
        return tree

    yield record
    for tree in made:
        tree.close()


def test_an_exchange_says_everything_that_is_needed_to_draw_it_again(recorded):
    tree = recorded(exchange(choices=(choice(0), choice(1))))
    (task,) = tree.tasks()
    assert task.tokens.tolist() == [1, 2]
    assert task.extra["tokenizer"] == CARD.tokenizer
    first, second = tree.children(task)
    assert first.tokens.tolist() == [5, 6, 0]
    assert first.logprobs.tolist() == pytest.approx([-1.0, -0.5, -0.1])
    assert (first.noise, second.noise) == (NoiseKey(3, 9, 0), NoiseKey(3, 9, 1))
    assert first.settings == {"temperature": 0.5}
    assert (first.policy, first.weights) == ("tiny", CARD.weights)
    assert first.extra["card"] == CARD.to_json()
    assert first.extra["served"] == {
        "id": "chatcmpl-1", "model": "m", "choice": 0, "seed": 3, "by": "key-1"
    }  # fmt: skip
    assert (first.cost.tokens_in, first.cost.tokens_out) == (2, 3)
    assert tree.path(first).tokens.tolist() == [1, 2, 5, 6, 0]
    assert list(tree.verify()) == []


def test_equal_prompts_are_one_root_and_equal_answers_stay_two(recorded):
    tree = recorded(exchange("a"), exchange("b"))
    (task,) = tree.tasks()
    assert len(list(tree.children(task))) == 2


def test_a_conversation_is_one_walk(recorded):
    first = exchange("a")
    reply = {"role": "assistant", "content": "ab", "refusal": None}
    second = exchange("b", before=(*first.messages, reply), said="more", prompt=(1, 2, 5, 6, 0, 7, 8))
    tree = recorded(first, second)
    assert len(list(tree.tasks())) == 1
    leaf = [node for node in tree.walk() if node.kind == "action"][-1]
    trajectory = tree.path(leaf)
    assert [step.node.kind for step in trajectory] == ["task", "action", "observation", "action"]
    assert trajectory.tokens.tolist() == [1, 2, 5, 6, 0, 7, 8, 5, 6, 0]
    said = [message["content"] for message in conversation(trajectory).messages]
    assert said == ["hi", "ab", "more"]


def test_a_conversation_whose_template_changes_the_past_is_a_rewrite(recorded):
    first = exchange("a")
    reply = {"role": "assistant", "content": "ab"}
    second = exchange("b", before=(*first.messages, reply), said="more", prompt=(1, 2, 9, 9, 7, 8))
    tree = recorded(first, second)
    leaf = [node for node in tree.walk() if node.kind == "action"][-1]
    trajectory = tree.path(leaf)
    assert [step.node.kind for step in trajectory] == ["task", "action", "rewrite", "action"]
    assert trajectory.tokens.tolist() == [1, 2, 9, 9, 7, 8, 5, 6, 0]
    assert len(conversation(trajectory).messages) == 3


def test_someone_elses_conversation_is_another_root(recorded):
    reply = {"role": "assistant", "content": "never said here"}
    tree = recorded(exchange("a"), exchange("b", before=(exchange().messages[0], reply), prompt=(1, 2, 3)))
    assert len(list(tree.tasks())) == 2


def test_a_plain_completion_and_a_chat_model_without_tokens(recorded):
    plain = exchange(
        "a", operation="text_completion", messages=None, text="once", choices=(choice(message=None),)
    )
    words = exchange(
        "b", prompt=None, text="", card=None, settings=None, tokens_in=1,
        choices=(Choice("yes", "tool_calls", tokens_out=4, note={"worker": "poet"}, money=0.5),),
    )  # fmt: skip
    tree = recorded(plain, words)
    one, two = tree.tasks()
    assert (one.text, one.message) == ("once", None)
    assert two.tokens is None
    (said,) = tree.children(two)
    assert (said.policy, said.finish, said.cost.money) == ("m", "stop", 0.5)
    assert said.extra["note"] == {"worker": "poet"}


def test_leaves_of_old_conversations_are_forgotten():
    talks = Conversations(most=2)
    for number in range(3):
        talks.add(exchange(said=str(number)), ["0" * 32])
    assert len(talks._leaves) == 2
    reply = {"role": "assistant", "content": "ab"}
    old = exchange(before=({"role": "user", "content": "0"}, reply))
    assert talks.find(old) is None
    new = exchange(before=({"role": "user", "content": "2"}, reply))
    assert talks.find(new) is not None


def test_ids_are_those_of_the_stored_nodes(tmp_path):
    drafts, ids = nodes_of(exchange(choices=(choice(0), choice(1))), None)
    with Tree.memory() as tree:
        assert [node.id for node in tree.append(drafts)][1:] == ids


class Failing:
    """A tree whose writes fail, or wait."""

    def __init__(self, error=None):
        self.error, self.go = error, threading.Event()

    def append(self, drafts):
        if self.error is not None:
            raise self.error
        self.go.wait()
        return []


def test_a_full_disk_is_counted_and_the_answer_goes_on(monkeypatch, caplog):
    monkeypatch.setattr("refork.serve.record.Tree", Failing)
    metrics = Metrics()
    recorder = ExchangeRecorder(Failing(DiskFull("no room")), metrics=metrics)
    with caplog.at_level(logging.ERROR, "refork.server"):
        asyncio.run(put(recorder, exchange("a"), exchange("b")))
    recorder.close()
    assert (recorder.written, recorder.failed) == (0, 2)
    assert "no room" in caplog.text
    assert b'refork_records_total{result="failed"} 2.0' in metrics.text()[0]


def test_or_the_answer_is_refused(monkeypatch):
    monkeypatch.setattr("refork.serve.record.Tree", Failing)
    recorder = ExchangeRecorder(Failing(DiskFull("no room")), strict=True)
    with pytest.raises(Refused) as caught:
        asyncio.run(recorder.exchange(exchange()))
    recorder.close()
    assert caught.value.status == 503


def test_a_tree_that_hangs_holds_nobody_for_ever(monkeypatch):
    monkeypatch.setattr("refork.serve.record.Tree", Failing)
    tree = Failing()
    recorder = ExchangeRecorder(tree, wait_s=0.02, waiting=1)
    asyncio.run(put(recorder, *(exchange(str(number)) for number in range(4))))
    assert recorder.failed == 4
    # What waited is written in the end, and stays counted as it was.
    tree.go.set()
    recorder.close()
    assert (recorder.written, recorder.failed) == (0, 4)


def test_one_bad_exchange_does_not_spoil_the_others(tmp_path, caplog):
    bad = exchange("bad", said="other", choices=(choice(logprobs=np.array([np.nan] * 3, np.float32)),))
    recorder = ExchangeRecorder(tmp_path / "served.db")
    asyncio.run(put(recorder, exchange("a"), bad, exchange("c")))
    recorder.close()
    assert (recorder.written, recorder.failed) == (2, 1)
    with Tree.open(tmp_path / "served.db", "r") as tree:
        ids = {node.extra["served"]["id"] for node in tree.walk() if node.kind == "action"}
    assert ids == {"a", "c"}


def test_after_closing_nothing_is_written_and_nobody_waits(tmp_path, caplog):
    recorder = ExchangeRecorder(tmp_path / "served.db")
    recorder.close()
    recorder.close()
    asyncio.run(recorder.exchange(exchange()))
    assert recorder.failed == 1


def test_the_answer_waits_until_the_exchange_is_durable(tmp_path):
    """When exchange() returns, another connection reads it."""

    async def one():
        recorder = ExchangeRecorder(tmp_path / "served.db")
        await recorder.exchange(exchange())
        with Tree.open(tmp_path / "served.db", "r") as tree:
            count = len(tree)
        await asyncio.to_thread(recorder.close)
        return count

    assert asyncio.run(one()) == 2
