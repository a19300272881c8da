from __future__ import annotations

import numpy as np
import pytest
import torch

from refork.errors import BadInput, CannotDo, WrongTokenizer
from refork_methods.implicit.aggregate import TOKEN_RULES, step_advantages
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.implicit.render import (
    Piece,
    action_tokens,
    cut_left,
    flat_pieces,
    template_pieces,
    vocabulary_difference,
)
from support import tool_talks
from support.implicit_policies import WORDS, make_policy

FLAT = [
    "[system]: open the door",
    "\n[user]: at the door",
    "\n[assistant]: go north",
    "\n[user]: at north",
    "\n[assistant]: tool_call(open, {'key': 1})",
    "\n[tool]: open",
    "\n[assistant]: [assistant action]",
]


def test_the_flat_rendering(messages):
    pieces = flat_pieces(messages)
    assert [p.text for p in pieces] == FLAT
    assert [p.message for p in pieces] == [None, None, 2, None, 4, None, 6]
    wrapped = {
        "role": "assistant",
        "content": "so",
        "tool_calls": [{"function": messages[4]["tool_calls"][0]}],
    }
    assert flat_pieces([wrapped])[0].text == "[assistant]: so\ntool_call(open, {'key': 1})"


def test_a_content_of_parts_reads_as_its_text():
    parts = [{"type": "text", "text": "at "}, {"type": "text", "text": "the door"}, {"type": "image_url"}]
    log = [{"role": "user", "content": parts}, {"role": "assistant", "content": parts[:2]}]
    assert [p.text for p in flat_pieces(log)] == [
        "[user]: at the door[image_url]", "\n[assistant]: at the door",
    ]  # fmt: skip
    plain = [
        {"role": "user", "content": "at the door[image_url]"},
        {"role": "assistant", "content": "at the door"},
    ]
    codec = tool_talks.codec(tool_talks.CHATML)
    assert template_pieces(log, codec) == template_pieces(plain, codec)


def test_logs_of_several_speakers():
    log = [
        {"role": "human", "content": "at the door"},
        {"role": "Planner", "content": "go north"},
        {"role": "Worker", "content": " "},
    ]
    assert [p.message for p in flat_pieces(log, "every")] == [0, 1, None]
    assert [p.message for p in flat_pieces(log, "every-but-human")] == [None, 1, None]
    assert flat_pieces(log, "every")[2].text == "\n[Worker]:  "
    with pytest.raises(BadInput, match="choice of actions"):
        flat_pieces(log, "nobody")


def plain_flat_scores(policy, reference, texts, actions, rule):
    """The same quantities the long way: whole matrices, one text, one loop."""
    tokens, spans = [], []
    for text in texts:
        ids = policy.codec.tokenizer(text, add_special_tokens=False)["input_ids"]
        spans.append((len(tokens), len(tokens) + len(ids)))
        tokens += ids
    columns = []
    for model in (policy.model, reference.model):
        with torch.no_grad():
            distribution = torch.log_softmax(model(torch.tensor([tokens])).logits[0].float(), -1)
        columns.append(np.array([float(distribution[i - 1, tokens[i]]) for i in range(1, len(tokens))]))
    reduce = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max, "last": lambda v: v[-1]}[rule]
    found = []
    for (start, end), acts in zip(spans, actions, strict=True):
        if acts:
            own = [column[start - 1 : end - 1] for column in columns]
            found.append(float(reduce(own[0]) - reduce(own[1])))
    return found


@pytest.mark.parametrize("rule", ["sum", "mean", "min", "max", "last"])
@pytest.mark.parametrize("chunked", [False, True])
def test_flat_scores_are_those_of_the_plain_computation(policy, reference, messages, rule, chunked):
    pair = ImplicitPair(policy, reference, chunked=chunked)
    (found,) = pair.logprobs([pair.render(messages, "flat")])
    name = f"{rule}-of-each" if rule in ("min", "max") else rule
    assert name in TOKEN_RULES
    acts = [m["role"] == "assistant" for m in messages]
    wanted = plain_flat_scores(policy, reference, FLAT, acts, rule)
    assert step_advantages(found, name).tolist() == pytest.approx(wanted, abs=1e-5)


def test_under_the_template_an_action_is_what_was_said_and_the_end_of_the_turn(policy, messages):
    spoken = [messages[0], messages[1], messages[2], messages[3], {"role": "assistant", "content": "wait"}]
    pieces = template_pieces(spoken, policy.codec)
    assert "".join(p.text for p in pieces) == policy.codec.template_text(spoken, generate=False)
    found = action_tokens(pieces, policy.codec, policy.codec, bos=False)
    said = [policy.codec.raw(found.tokens[found.step_id == i]) for i in range(2)]
    assert said == ["go north<|end|>", "wait<|end|>"]
    assert found.messages == (2, 4)
    assert not found.cut.any()


def test_a_beginning_of_sequence_token_comes_first_where_there_is_one(policy):
    pieces = [Piece("go", 0, True)]
    without = action_tokens(pieces, policy.codec, policy.codec, bos=True)
    assert len(without.tokens) == 1, "this tokenizer has none"
    assert without.cut.tolist() == [True], "nothing precedes its first token"
    other = make_policy(1).codec
    other.tokenizer.bos_token = "<|user|>"
    found = action_tokens(pieces, other, other, bos=True)
    assert found.tokens[0] == other.tokenizer.bos_token_id
    assert found.step_id.tolist() == [-1, 0]
    assert not found.cut.any()


def test_what_is_cut_from_the_left_is_marked(policy, messages):
    whole = action_tokens(flat_pieces(messages), policy.codec, policy.codec, bos=False)
    start = int(np.flatnonzero(whole.step_id == 0)[0])
    assert not whole.cut.any()
    just = cut_left(whole, len(whole.tokens) - start + 1)
    assert not just.cut.any()
    assert cut_left(whole, len(whole.tokens) - start).cut.tolist() == [True, False, False]
    inside = cut_left(whole, len(whole.tokens) - start - 2)
    assert inside.cut.tolist() == [True, False, False]
    gone = cut_left(whole, 3)
    assert gone.cut.tolist() == [True, True, True]
    assert cut_left(whole, 10_000) is whole


def test_no_action_is_refused(policy):
    for pieces in ([], [Piece("at north", None, True)]):
        with pytest.raises(BadInput, match="is an action"):
            action_tokens(pieces, policy.codec, policy.codec, bos=False)


def test_other_vocabularies_and_other_tokens_are_refused(policy, messages):
    other = make_policy(3, (*WORDS[::-1], "more"))
    assert vocabulary_difference(policy.codec, policy.codec) is None
    assert "is" in str(vocabulary_difference(policy.codec, other.codec))
    with pytest.raises(WrongTokenizer, match="other vocabularies: token"):
        ImplicitPair(policy, other)
    with pytest.raises(WrongTokenizer, match="same text as other tokens"):
        action_tokens(flat_pieces(messages), policy.codec, other.codec, bos=False)


def test_a_template_that_rewrites_earlier_turns_is_refused(messages):
    forgetful = make_policy(1)
    template = forgetful.codec.tokenizer.chat_template
    forgetful.codec.tokenizer.chat_template = template.replace("m in messages", "m in messages[-1:]")
    again = type(forgetful.codec)(forgetful.codec.tokenizer)
    spoken = [messages[1], messages[2], messages[3], {"role": "assistant", "content": "wait"}]
    with pytest.raises(CannotDo, match="rewrites earlier turns"):
        template_pieces(spoken, again)
