"""A local model on a real socket: the tokens and log-probs of the policy itself, whatever else is served."""

import asyncio
import json

import httpx
import numpy as np
import openai
import pytest

from refork.policies.base import Request, Sampling, sample_all
from refork.policies.remote import RemotePolicy
from refork.sampling.noise import NoiseKey
from refork.serve import serving
from refork.serve.engine_model import SEEDED, EngineModel
from refork.types import token_array
from refork_methods.speculate.speculator import ModelSpeculator
from support.drafters import gqa, knowing
from support.planted_live import chat_policy

TALK = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is é 😀?"}]
PROMPT = "it was a dark and stormy night"


@pytest.fixture(scope="module")
def policy():
    return chat_policy()


@pytest.fixture(scope="module")
def model(policy):
    return EngineModel(policy, width=8)


@pytest.fixture(scope="module")
def address(model):
    with serving({"m": model}) as address:
        yield address


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(api_key="none", base_url=address, max_retries=0) as client:
        yield client


def drawn(policy, tokens, seed, n=1, **settings):
    """What the policy itself draws under a seed."""
    keys = [NoiseKey(seed, SEEDED, i) for i in range(n)]
    asked = Sampling(**{"max_tokens": 24, **settings})
    return sample_all(policy, [Request(token_array(tokens), key) for key in keys], asked)


def complete(client, prompt=PROMPT, **more):
    return client.completions.create(prompt=prompt, **{"model": "m", "max_tokens": 24, "seed": 3, **more})


def chat(client, **more):
    return client.chat.completions.create(
        model="m", **{"messages": TALK, "max_tokens": 24, "seed": 3, **more}
    )


def test_completions_are_the_policy_s_draws(client, policy):
    answer = complete(client, n=3, extra_body={"return_token_ids": True})
    ids = policy.encode(PROMPT)
    for choice, own in zip(answer.choices, drawn(policy, ids, 3, 3), strict=True):
        assert choice.token_ids == own.tokens.tolist()
        assert (choice.text, choice.finish_reason) == (own.text, own.finish)
        assert choice.prompt_token_ids == ids.tolist()
    assert len({choice.text for choice in answer.choices}) == 3
    said = sum(len(choice.token_ids) for choice in answer.choices)
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": len(ids), "completion_tokens": said, "total_tokens": len(ids) + said,
    }  # fmt: skip


def test_prompts_come_as_ids_and_in_lists_and_each_is_answered_as_if_alone(client, policy):
    ids = policy.encode(PROMPT).tolist()
    forms = [ids, [ids, ids[:5]], [PROMPT, PROMPT[:5]]]
    one, two, three = (complete(client, form, n=2, temperature=0.7, top_p=0.9) for form in forms)
    own = [
        item.text
        for tokens in (ids, policy.encode(PROMPT[:5]).tolist())
        for item in drawn(policy, tokens, 3, 2, temperature=0.7, top_p=0.9)
    ]
    assert [choice.text for choice in one.choices] == own[:2]
    assert [choice.text for choice in three.choices] == own
    assert [choice.text for choice in two.choices[:2]] == own[:2]
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3]


def test_settings_act_as_in_the_policy(client, policy):
    ids = policy.encode(PROMPT)
    for settings, own in (
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"extra_body": {"top_k": 3}}, {"top_k": 3}),
        ({"logit_bias": {"66": -100, "70": -100}}, {"banned": (66, 70)}),
        ({"extra_body": {"stop_token_ids": list(range(60, 90))}}, {"stop_ids": tuple(range(60, 90))}),
        ({"extra_body": {"ignore_eos": True}}, {"ignore_eos": True}),
    ):
        (item,) = drawn(policy, ids, 3, **own)
        (choice,) = complete(client, **settings).choices
        assert (choice.text, choice.finish_reason) == (item.text, item.finish)


def test_a_stream_is_the_whole_answer_in_parts(client):
    for more in ({}, {"n": 3}, {"logprobs": 2, "echo": True}):
        whole = complete(client, **more)
        parts = list(complete(client, stream=True, stream_options={"include_usage": True}, **more))
        assert parts[-1].usage == whole.usage
        for choice in whole.choices:
            mine = [c for part in parts for c in part.choices if c.index == choice.index]
            assert "".join(part.text for part in mine) == choice.text
            assert [part.finish_reason for part in mine if part.finish_reason] == [choice.finish_reason]
            if choice.logprobs:
                assert [t for part in mine for t in part.logprobs.tokens] == choice.logprobs.tokens
                offsets = [t for part in mine for t in part.logprobs.text_offset]
                assert offsets == choice.logprobs.text_offset
        assert len(parts) > 10
    whole = chat(client, n=2, logprobs=True)
    parts = list(chat(client, n=2, logprobs=True, stream=True, extra_body={"return_token_ids": True}))
    assert parts[0].choices[0].delta.role == "assistant"
    for choice in whole.choices:
        mine = [c for part in parts for c in part.choices if c.index == choice.index]
        assert "".join(part.delta.content or "" for part in mine) == choice.message.content
        assert [e for part in mine if part.logprobs for e in part.logprobs.content] == choice.logprobs.content
        assert sum(len(getattr(part, "token_ids", ())) for part in mine) == len(choice.logprobs.content)


def test_log_probs_are_the_policy_s(client, policy):
    answer = complete(client, echo=True, logprobs=4, extra_body={"return_token_ids": True})
    (choice,) = answer.choices
    ids = token_array([*choice.prompt_token_ids, *choice.token_ids])
    found = choice.logprobs
    assert found.token_logprobs[0] is None
    assert np.allclose(found.token_logprobs[1:], policy.logprobs([ids])[0], atol=1e-5)
    assert choice.text == policy.decode(ids)
    distributions = policy.next_logprobs([ids[:end] for end in range(1, len(ids))])
    for distribution, top in zip(distributions, found.top_logprobs[1:], strict=True):
        assert np.allclose(sorted(top.values(), reverse=True)[0], distribution.max(), atol=1e-5)
        assert len(top) <= 5
    for start, end, token in zip(
        found.text_offset, [*found.text_offset[1:], None], found.tokens, strict=True
    ):
        piece = choice.text[start:end]
        assert piece in (token, "") or "\ufffd" in token + piece
    zero = complete(client, echo=True, logprobs=0, max_tokens=0).choices[0]
    assert (zero.text, zero.finish_reason) == (PROMPT, "length")
    assert np.allclose(
        zero.logprobs.token_logprobs[1:], policy.logprobs([policy.encode(PROMPT)])[0], atol=1e-5
    )


def test_chat_log_probs_name_tokens_and_their_bytes(client, policy):
    answer = chat(client, logprobs=True, top_logprobs=3, extra_body={"return_token_ids": True})
    (choice,) = answer.choices
    prompt = policy.render([], token_array([]), TALK).tokens
    assert answer.prompt_token_ids == prompt.tolist()
    (own,) = drawn(policy, prompt, 3)
    assert choice.token_ids == own.tokens.tolist()
    assert choice.message.content == own.text
    assert np.allclose([e.logprob for e in choice.logprobs.content], own.logprobs_t1, atol=1e-6)
    for entry, token in zip(choice.logprobs.content, own.tokens, strict=True):
        assert entry.token == policy.codec.raw([token])
        assert entry.bytes == (None if "\ufffd" in entry.token else list(entry.token.encode()))
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob >= entry.logprob - 1e-6


def test_tokens_of_texts_and_conversations_are_the_policy_s(address, policy, monkeypatch):
    root = address.removesuffix("/v1")

    def asked(path, **body):
        answer = httpx.post(f"{root}/{path}", json={"model": "m", **body})
        return answer.json() if answer.status_code == 200 else answer.json()["error"]["param"]

    ids = policy.encode(PROMPT).tolist()
    told = asked("tokenize", prompt=PROMPT, add_special_tokens=False, return_token_strs=True)
    assert (told["tokens"], told["count"], "".join(told["token_strs"])) == (ids, len(ids), PROMPT)
    assert asked("tokenize", prompt=PROMPT)["tokens"] == [*policy.codec.opening, *ids]
    talk = asked("tokenize", messages=TALK)["tokens"]
    assert talk == policy.render([], token_array([]), TALK).tokens.tolist()
    assert asked("detokenize", tokens=ids) == {"prompt": PROMPT}
    assert asked("detokenize", tokens=[1 << 30]) == asked("detokenize", tokens=[-1]).split(".")[0] == "tokens"
    assert asked("tokenize") == asked("tokenize", prompt="a", messages=TALK) == "prompt"
    monkeypatch.setattr(type(policy.codec), "opening", property(lambda codec: [5]))
    assert asked("tokenize", prompt=PROMPT)["tokens"] == [5, *ids]
    assert asked("tokenize", prompt=PROMPT, add_special_tokens=False)["tokens"] == ids
    monkeypatch.undo()
    # So our client needs no tokenizer by hand: it counts, and draws, what the policy does.
    remote = RemotePolicy(address, "m")
    assert remote.encode(PROMPT).tolist() == ids
    assert remote.decode(token_array(ids)) == PROMPT


def test_an_answer_goes_on_from_a_beginning(client, policy):
    begun = {"role": "assistant", "content": "it is é"}
    going = {"continue_final_message": True, "add_generation_prompt": False}
    told = chat(client, messages=[*TALK, begun], n=2, extra_body={**going, "return_token_ids": True})
    prompt = [*policy.render([], token_array([]), TALK).tokens, *policy.encode(begun["content"])]
    assert told.prompt_token_ids == prompt
    for said, draw in zip(told.choices, drawn(policy, prompt, 3, n=2), strict=True):
        assert said.token_ids == list(draw.tokens)
        # What comes behind the beginning, and not the beginning again.
        assert said.message.content == policy.codec.pieces(said.token_ids)[0]
    # Without the field it is a message like others, and a new answer begins.
    other = chat(client, messages=[*TALK, begun], extra_body={"return_token_ids": True})
    assert other.prompt_token_ids != prompt


def test_a_stop_string_is_met_across_tokens_and_left_out(client, policy):
    (own,) = drawn(policy, policy.encode(PROMPT), 3, max_tokens=60)
    stop = own.text[7:10]
    at = own.text.find(stop)
    (choice,) = complete(client, stop=["zzzz", stop], max_tokens=60).choices
    assert (choice.text, choice.finish_reason, choice.stop_reason) == (own.text[:at], "stop", stop)
    parts = complete(client, stop=stop, max_tokens=60, stream=True)
    assert "".join(part.choices[0].text for part in parts) == own.text[:at]
    kept = complete(client, stop=stop, max_tokens=60, extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == own.text[: at + len(stop)]
    assert kept.usage.completion_tokens < 60


def test_a_seed_gives_its_tokens_whatever_is_served_beside_it(address, client):
    alone = [complete(client, PROMPT[: 5 + i], seed=i, n=1 + i % 3) for i in range(12)]

    async def together():
        async with openai.AsyncOpenAI(api_key="none", base_url=address, max_retries=0) as many:
            return await asyncio.gather(
                *(
                    many.completions.create(
                        model="m", prompt=PROMPT[: 5 + i], seed=i, n=1 + i % 3, max_tokens=24
                    )
                    for i in range(12)
                ),
                *(chat(many, seed=None, max_tokens=5 + i) for i in range(8)),
            )

    crowd = asyncio.run(together())
    for one, other in zip(alone, crowd, strict=False):
        assert [c.text for c in one.choices] == [c.text for c in other.choices]
    fresh = {chat(client, seed=None).choices[0].message.content for _ in range(4)}
    assert len(fresh) == 4


def test_our_own_client_finds_a_token_exact_paired_policy(address, policy):
    remote = RemotePolicy(address, "m", tokenizer=policy.codec)
    assert {"tokens", "logprobs", "scores", "paired"} <= remote.card.capabilities
    key = NoiseKey(5, 6, 7)
    ids = policy.encode(PROMPT)
    (far,) = sample_all(remote, [Request(ids, key)], Sampling(temperature=1.3, max_tokens=12, stop=("q",)))
    (near,) = sample_all(
        policy,
        [Request(ids, NoiseKey(key.call_seed(0), SEEDED, 0))],
        Sampling(temperature=1.3, max_tokens=12, stop=("q",)),
    )
    assert far.tokens.tolist() == near.tokens.tolist()
    assert np.allclose(far.logprobs_t1, near.logprobs_t1, atol=1e-5)
    assert np.allclose(remote.logprobs([ids])[0], policy.logprobs([ids])[0], atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        Sampling(
            presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.4, min_p=0.01, max_tokens=12
        ),
        Sampling(frequency_penalty=-1.0, temperature=0.7, max_tokens=12),
    ],
)
def test_served_penalties_are_those_of_the_model_here(address, policy, settings):
    remote = RemotePolicy(address, "m", tokenizer=policy.codec)
    ids, keys = policy.encode(PROMPT), [NoiseKey(5, 6, i) for i in range(3)]
    far = sample_all(remote, [Request(ids, key) for key in keys], settings)
    near = sample_all(policy, [Request(ids, NoiseKey(key.call_seed(0), SEEDED, 0)) for key in keys], settings)
    plain = sample_all(
        policy, [Request(ids, NoiseKey(key.call_seed(0), SEEDED, 0)) for key in keys], Sampling()
    )
    assert [c.tokens.tolist() for c in far] == [c.tokens.tolist() for c in near]
    assert [c.tokens.tolist()[:12] for c in plain] != [c.tokens.tolist() for c in near]
    for one, other in zip(far, near, strict=True):
        assert np.allclose(one.logprobs_t1, other.logprobs_t1, atol=1e-5)
    beside = sample_all(remote, [Request(ids, keys[0]), Request(ids, keys[1])], Sampling(max_tokens=12))
    assert [c.tokens.tolist() for c in beside] == [c.tokens.tolist()[:12] for c in plain[:2]]


def test_responses_are_the_chat_answers(client):
    (choice,) = chat(client).choices
    talk = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TALK[1]["content"]}]}
    ]
    ask = {"model": "m", "input": talk, "instructions": "be brief", "extra_body": {"seed": 3}}
    answer = client.responses.create(**ask, max_output_tokens=24)
    assert answer.output_text == choice.message.content
    assert answer.status == ("incomplete" if choice.finish_reason == "length" else "completed")
    with client.responses.stream(**ask, max_output_tokens=24) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert said == choice.message.content


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("completions", {"prompt": "x", "best_of": 3}, "best_of", "only n"),
        ("completions", {"prompt": "x", "suffix": "y"}, "suffix", "cannot be had"),
        ("completions", {"prompt": []}, "prompt", "none"),
        ("completions", {"prompt": "\ud800"}, "prompt", "unicode"),
        ("chat/completions", {"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "unicode"),
        ("completions", {"prompt": "x", "logit_bias": {"\ud800": "x"}},
         "logit_bias." + "\ufffd" * 3, "number"),
        ("completions", {"prompt": ""}, None, "empty"),
        ("completions", {"prompt": [99999]}, "prompt", "vocabulary"),
        ("completions", {"prompt": "x" * 700}, None, "context"),
        ("completions", {"prompt": "x" * 99_999}, "prompt", "no room"),
        ("completions", {"prompt": ["x", 1]}, "prompt", "valid string, or: "),
        ("completions", {"prompt": ["x"] * 100_000}, "prompt", "100000 choices"),
        ("completions", {"prompt": "x", "logit_bias": {str(i): -100 for i in range(258)}}, None, "banned"),
        ("completions", {"prompt": "x", "temperature": 1e-300}, "temperature", "greedy"),
        ("completions", {"prompt": "x", "stop": ["\ud800"]}, "stop", "unicode"),
        ("completions", {"prompt": "x", "stop": "x" * 1001}, "stop", "1,000"),
        ("completions", {"prompt": "x", "max_tokens": 0}, "max_tokens", "echo"),
        ("completions", {"prompt": "x", "logprobs": 21}, "logprobs", "20"),
        ("completions", {"prompt": "x", "temperature": -1}, "temperature", "0"),
        ("completions", {"prompt": "x", "logit_bias": {"5": 3}}, "logit_bias", "-100"),
        ("completions", {"prompt": "x", "n": 65}, "n", "64"),
        ("completions", {"prompt": "x", "stop": [""]}, "stop", "empty"),
        ("chat/completions", {"messages": TALK, "length_penalty": 2}, "length_penalty", "cannot"),
        ("chat/completions", {"messages": TALK, "presence_penalty": 3}, "presence_penalty", "2"),
        ("chat/completions", {"messages": TALK, "continue_final_message": True}, "continue_final_message",
         "no beginning"),
        ("chat/completions", {"messages": TALK, "add_generation_prompt": False}, "add_generation_prompt",
         "answered"),
        ("chat/completions", {"messages": [*TALK, {"role": "assistant", "content": "a"}],
                              "continue_final_message": True, "response_format": {"type": "json_object"}},
         "continue_final_message", "form"),
        ("chat/completions", {"messages": TALK, "top_logprobs": 3}, "top_logprobs", "logprobs"),
        ("chat/completions", {"messages": TALK, "tool_choice": "required"}, "tool_choice", "no tools"),
        ("chat/completions", {"messages": TALK, "max_tokens": 3, "max_completion_tokens": 4},
         "max_tokens", "differ"),
        ("chat/completions", {"messages": TALK, "response_format": {"type": "xml"}},
         "response_format", "json_schema"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         None, "text only"),
        ("chat/completions", {"messages": [{**TALK[0], "x": json.loads("[" * 900 + "]" * 900)}]},
         "messages", "deeply"),
        ("chat/completions", {"messages": TALK, "tools": [{"function": {"name": "x"}}] * 1025},
         "tools", "1024"),
        ("chat/completions", {"messages": TALK, "tools": [{"function": "x"}]}, "tools.0.function", "valid"),
        ("responses", {"input": "x", "store": True}, "store", "keeps no"),
        ("responses", {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", "keeps no"),
        ("responses", {"input": "x", "tools": [{"type": "custom"}]}, "tools.0", "name"),
        ("responses", {"input": [{"type": "computer_call"}]}, "input.0", "computer_call"),
        ("responses", {"input": []}, "input", "no message"),
        ("responses", {"input": "x", "background": True}, "background", "cannot"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_by_name(address, path, body, param, says):
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{address}/{path}", content=json.dumps({"model": "m", **body}), headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert says in error["message"]


def test_settings_without_effect_are_named(client):
    raw = client.completions.with_raw_response.create(
        model="m", prompt="x", user="me", frequency_penalty=0, max_tokens=1, extra_body={"chips": 1}
    )
    assert raw.headers["refork-ignored"] == "chips, user"


def test_nothing_is_left_when_all_is_said(model):
    assert (model.engine.running, model.engine.waiting, model.engine.failed) == (0, 0, None)


def test_a_drafter_changes_no_answer_and_its_drafts_are_counted():
    target = gqa()
    drafting = ModelSpeculator(knowing(target), rule="coupled")
    models = {
        "m": EngineModel(target, width=8),
        "fast": EngineModel(gqa(), width=8, speculator=drafting),
    }
    with serving(models) as address, openai.OpenAI(api_key="none", base_url=address) as client:
        stop = complete(client, max_tokens=40).choices[0].text[8:11]
        for more in ({"n": 3, "logprobs": 1}, {"stop": stop, "max_tokens": 40}, {"temperature": 0.0}):
            plain, fast = complete(client, **more), complete(client, model="fast", **more)
            assert [c.text for c in fast.choices] == [c.text for c in plain.choices]
            for one, other in zip(plain.choices, fast.choices, strict=True):
                if one.logprobs:
                    values = [c.logprobs.token_logprobs for c in (one, other)]
                    assert np.allclose(*values, atol=1e-4)
            assert fast.usage == plain.usage
            parts = list(complete(client, model="fast", stream=True, **more))
            for choice in fast.choices:
                mine = [c.text for p in parts for c in p.choices if c.index == choice.index]
                assert "".join(mine) == choice.text
    assert drafting.tally.stats.accepted > 0


def test_unknown_fields_without_end_make_no_endless_header(address):
    body = {"model": "m", "prompt": "x", "max_tokens": 1, **{f"f{i}": 1 for i in range(2000)}}
    told = httpx.post(f"{address}/completions", json=body).headers["refork-ignored"]
    assert (told.count(","), told[-5:]) == (50, ", ...")
