"""Answers held to a form over a real socket: calls that must be made, JSON of a schema, and bystanders."""

import json
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import numpy as np
import openai
import pytest

from refork.chat import ScriptedChat
from refork.decoding.live import LiveDecoder
from refork.forking.arm import fork
from refork.forking.change import Insert
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.call_form import call_form
from refork.sampling.grammar import Grammar
from refork.sampling.noise import NoiseKey
from refork.serve import serving
from refork.serve.engine_model import SEEDED, EngineModel
from refork.serve.settings import ServerSettings
from refork.serve.turn import TurnText
from refork.tree.tree import Tree
from refork.types import token_array
from refork_methods.speculate.speculator import ModelSpeculator
from support.drafters import gqa, knowing
from support.planted_live import TEMPLATE, chat_policy

TALK = [{"role": "user", "content": "say é"}]
PARAMETERS = {
    "type": "object",
    "properties": {
        "to": {"enum": ["ann", "bo\"b", "é"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 20},
        "flags": {"type": "array", "items": {"$ref": "#/$defs/flag"}, "maxItems": 2},
    },
    "required": ["to", "n"],
    "$defs": {"flag": {"type": "boolean"}},
}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": "send", "parameters": PARAMETERS, "strict": True}},
    {
        "type": "function",
        "function": {"name": "send_all", "parameters": {"type": "object", "properties": {}}},
    },
    {"type": "function", "function": {"name": "look"}},
]
SCHEMAS = {
    "send": PARAMETERS | {"additionalProperties": False},
    "send_all": {"maxProperties": 0},
    "look": {"maxProperties": 0},
}
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
ANSWER = {
    "type": "object",
    "properties": {"word": {"enum": ["yes", "né"]}, "n": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["word", "n"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER, "strict": True}}
SEND = {"type": "function", "function": {"name": "send"}}


@pytest.fixture(scope="module")
def policy():
    return chat_policy(context=1600)


@pytest.fixture(scope="module")
def client(policy):
    with (
        serving({"m": EngineModel(policy, width=8)}) as address,
        openai.OpenAI(api_key="none", base_url=address, max_retries=0) as client,
    ):
        yield client


def chat(client, **more):
    return client.chat.completions.create(
        model="m", **{"messages": TALK, "max_tokens": 300, "seed": 3, **more}
    )


def valid(choice, most=None):
    """Checks a choice that had to call; how many calls it made."""
    calls = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    assert most is None or len(calls) <= most
    return len(calls)


def test_whoever_must_call_makes_valid_calls_always(client):
    names = set()
    for seed in (1, 2):
        answer = chat(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, n=50, seed=seed)
        for choice in answer.choices:
            assert valid(choice) == 1
            names.add(choice.message.tool_calls[0].function.name)
    assert len(names) > 1
    several = chat(client, tools=TOOLS, tool_choice="required", n=8)
    assert max(valid(choice) for choice in several.choices) > 1


def test_one_call_of_the_named_tool_or_of_those_that_are_allowed(client):
    for choice in chat(client, tools=TOOLS, tool_choice=SEND, n=3).choices:
        assert valid(choice, 1) == 1
        assert choice.message.tool_calls[0].function.name == "send"
    some = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}
    for choice in chat(
        client, tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": some}, n=5
    ).choices:
        assert valid(choice) >= 1
        assert {call.function.name for call in choice.message.tool_calls} == {"look"}
    with pytest.raises(openai.BadRequestError, match="none of the tools"):
        chat(client, tools=TOOLS[1:], tool_choice=SEND)


def test_arguments_stay_as_they_were_written(policy):
    form = call_form(policy.codec)
    turn = TurnText(TOOLS, form)
    written = ['{"n": 0.1234567890123456789, "to": "\\u00e9", "x": 1e400}', "{}"]
    for name, arguments in zip(("send", "send_all"), written, strict=True):
        assert turn.put(f"{form.before}{name}{form.between}{arguments}{form.after}") == ""
    turn.put('<tool_call>{"name": "lo')  # cut off
    message = turn.message()
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == written
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["send", "send_all"]
    cut = TurnText(TOOLS, form)
    cut.put('<tool_call>{"name": "se')
    assert cut.message() == {"role": "assistant", "content": '<tool_call>{"name": "se'}


def test_an_answer_of_a_schema_and_any_object(client, policy):
    for choice in chat(client, response_format=SCHEMA, n=8).choices:
        jsonschema.validate(json.loads(choice.message.content), ANSWER)
        assert choice.finish_reason == "stop"
    cut = chat(client, response_format={"type": "json_object"}, max_tokens=20, n=3).choices
    for choice in cut:
        assert choice.message.content.startswith("{")
        assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content), dict)
    plain = chat(client, max_tokens=9)
    text = chat(client, max_tokens=9, response_format={"type": "text"})
    assert text.choices[0].message.content == plain.choices[0].message.content


def test_a_schema_beside_tools_that_may_be_called(client):
    kinds = set()
    for choice in chat(client, tools=TOOLS, response_format=SCHEMA, n=12).choices:
        if choice.message.tool_calls:
            kinds.add("calls")
            valid(choice)
        else:
            kinds.add("answer")
            jsonschema.validate(json.loads(choice.message.content), ANSWER)
    assert kinds == {"calls", "answer"}
    for choice in chat(client, tools=TOOLS, tool_choice="none", response_format=SCHEMA, n=5).choices:
        jsonschema.validate(json.loads(choice.message.content), ANSWER)


def test_a_stream_is_the_whole_answer_in_parts(client):
    whole = chat(client, response_format=SCHEMA).choices[0].message.content
    parts = list(chat(client, response_format=SCHEMA, stream=True))
    texts = [part.choices[0].delta.content for part in parts if part.choices[0].delta.content]
    assert "".join(texts) == whole
    assert len(texts) > 3
    (call,) = chat(client, tools=TOOLS, tool_choice=SEND).choices[0].message.tool_calls
    deltas = [part.choices[0] for part in chat(client, tools=TOOLS, tool_choice=SEND, stream=True)]
    made = [one for delta in deltas for one in delta.delta.tool_calls or []]
    assert [one.function.model_dump() for one in made] == [call.function.model_dump()]
    assert deltas[-1].finish_reason == "tool_calls"


def test_responses(client):
    ask = {"model": "m", "input": "say é", "max_output_tokens": 300, "extra_body": {"seed": 3}}
    flat = {"type": "json_schema", "name": "answer", "schema": ANSWER, "strict": True}
    answer = client.responses.create(**ask, text={"format": flat})
    jsonschema.validate(json.loads(answer.output_text), ANSWER)
    assert answer.text.format.type == "json_schema"
    assert answer.output_text == chat(client, response_format=SCHEMA).choices[0].message.content
    for choice in (
        "required",
        {"type": "function", "name": "send"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "send"}]},
    ):
        made = client.responses.create(**ask, tools=FLAT, tool_choice=choice).output
        assert {item.type for item in made} == {"function_call"}
        for item in made:
            assert choice == "required" or item.name == "send"
            jsonschema.validate(json.loads(item.arguments), SCHEMAS[item.name])
    with client.responses.stream(**ask, tools=FLAT, tool_choice="required") as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
    assert done
    free = client.responses.create(**ask | {"max_output_tokens": 5}, tool_choice="auto")
    assert free.output[0].type == "message"


@pytest.mark.parametrize(
    ("path", "more", "param"),
    [
        (
            "chat/completions",
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "strin"}},
                }
            },
            "response_format",
        ),
        (
            "chat/completions",
            {
                "tools": [
                    TOOLS[2],
                    {
                        "type": "function",
                        "function": {"name": "x", "parameters": {"properties": {"a": {"not": {}}}}},
                    },
                ],
                "tool_choice": "required",
            },
            "tools.1.function.parameters",
        ),
        (
            "chat/completions",
            {
                "tools": [{"type": "function", "function": {"name": "x", "parameters": {"type": "string"}}}],
                "tool_choice": "required",
            },
            "tools.0.function.parameters",
        ),
        (
            "chat/completions",
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema.json_schema",
        ),
        (
            "responses",
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"enum": []}}}},
            "text.format",
        ),
        (
            "responses",
            {
                "tools": [{"type": "function", "name": "x", "parameters": {"$ref": "#/no"}}],
                "tool_choice": "required",
            },
            "tools.0.parameters",
        ),
        ("responses", {"tool_choice": "required"}, "tool_choice"),
        ("responses", {"tools": FLAT, "tool_choice": {"type": "function", "name": "no"}}, "tool_choice"),
    ],
)
def test_what_cannot_be_held_to_is_refused_by_name(client, path, more, param):
    what = {"messages": TALK} if path == "chat/completions" else {"input": "x"}
    with pytest.raises(openai.BadRequestError) as refused:
        client.post(f"/{path}", body={"model": "m", **what, **more}, cast_to=object)
    assert refused.value.param == param


def test_models_that_cannot_say_so():
    bare = chat_policy()
    bare.codec.tokenizer.chat_template = TEMPLATE.replace("<tool_call>{{", "{{").replace("c.function", "c.id")
    models = {
        "chat": ScriptedChat(lambda messages: "yes"),
        "bare": type(bare)(bare.model, bare.codec.tokenizer),
    }
    with (
        serving(models) as address,
        openai.OpenAI(api_key="none", base_url=address, max_retries=0) as client,
    ):
        for model, more, param in (
            ("chat", {"response_format": SCHEMA}, "response_format"),
            ("chat", {"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
            ("bare", {"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(model=model, messages=TALK, **more)
            assert refused.value.param == param


def drawn(policy, tokens, seed, **settings):
    request = Request(token_array(tokens), NoiseKey(seed, SEEDED, 0))
    return sample_all(policy, [request], Sampling(**settings))[0]


def test_whoever_is_not_held_keeps_his_tokens_beside_those_who_are(client, policy):
    ids = policy.encode("it was")

    def free(seed):
        return client.completions.create(
            model="m", prompt="it was", seed=seed, max_tokens=40, extra_body={"return_token_ids": True}
        ).choices[0]

    with ThreadPoolExecutor(8) as pool:
        held = [pool.submit(chat, client, response_format=SCHEMA, seed=seed, n=2) for seed in range(3)]
        others = [pool.submit(free, seed) for seed in range(6)]
        crowd = [future.result() for future in held]
        said = [future.result().token_ids for future in others]
    for seed, tokens in enumerate(said):
        assert tokens == drawn(policy, ids, seed, max_tokens=40).tokens.tolist()
    for seed, answer in enumerate(crowd):
        alone = chat(client, response_format=SCHEMA, seed=seed, n=2)
        assert [c.message.content for c in alone.choices] == [c.message.content for c in answer.choices]


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_a_drafter_drafts_for_the_others_and_changes_nothing(rule):
    target = gqa()
    grammar = Grammar.json_schema(ANSWER)
    held = Sampling(grammar=grammar, max_tokens=60, temperature=0.8)
    free = Sampling(max_tokens=40, temperature=0.0)
    prompts = [target.encode(text) for text in ("it", "was a dark")]
    asks = [
        target.ask(prompt, NoiseKey(5, 6, i), distribution, generated=0)
        for i in range(2)
        for prompt in prompts
        for distribution in (held, free)
    ]
    drafting = ModelSpeculator(knowing(target), rule=rule)
    live = LiveDecoder(target.decoder, width=len(asks), speculator=drafting)
    request_ids = {live.submit(ask): ask for ask in asks}
    said = {request_id: ([], [], 0) for request_id in request_ids}
    while not live.idle:
        for item in live.step():
            tokens, nats, drafted = said[item.request_id]
            said[item.request_id] = (
                [*tokens, *item.tokens.tolist()], [*nats, *item.logprobs.tolist()], drafted + item.drafted
            )  # fmt: skip
    for request_id, ask in request_ids.items():
        (own,) = sample_all(target, [Request(ask.tokens, ask.noise)], held if ask.guide else free)
        tokens, nats, drafted = said[request_id]
        assert tokens == own.tokens.tolist()
        assert np.allclose(nats, own.logprobs, atol=1e-4)
        assert (drafted == 0) == (ask.guide is not None)
    assert drafting.tally.stats.accepted > 0


def test_a_record_draws_again_and_forks_inside_a_call(tmp_path):
    policy = chat_policy(context=1600)
    settings = ServerSettings(port=0, record=tmp_path / "served.db")
    with (
        serving({"m": EngineModel(policy, width=4)}, settings) as address,
        openai.OpenAI(api_key="none", base_url=address, max_retries=0) as client,
    ):
        chat(client, tools=TOOLS, tool_choice=SEND, n=2)
        chat(client, response_format=SCHEMA)
    with Tree.open(tmp_path / "served.db") as tree:
        assert not list(tree.verify({policy.card.name: policy}, redraw=True))
        said = [node for node in tree.walk() if node.kind == "action"]
        assert len(said) == 3
        for node in said:
            for token in (1, node.length // 2):
                arm = fork(tree.at(node, token), policy, draws=2)
                for trajectory in arm.leaves():
                    assert trajectory.leaf.error is None
                    text = node.text[: node.offsets[token - 1]] + trajectory.leaf.text
                    if node.text.startswith("<tool_call>"):
                        (made,) = call_form(policy.codec).read(text, ["send"])
                        jsonschema.validate(json.loads(made[1]), SCHEMAS["send"])
                    else:
                        jsonschema.validate(json.loads(text), ANSWER)
        assert not list(tree.verify({policy.card.name: policy}, redraw=True))
        broken = fork(tree.at(said[0], 4), policy, draws=2, change=Insert(text="zz"))
        assert {draw.end for draw in broken.draws} == {"error"}
