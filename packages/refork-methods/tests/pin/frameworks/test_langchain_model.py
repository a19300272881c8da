"""A pinned chat model: every form of input, tools, structured output, agents, and real providers' clients."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.fake_chat_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompt_values import StringPromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from pin.frameworks.histories import MAIL as BUFFER
from pin.frameworks.histories import caller, look, talker
from refork.errors import CannotDo
from refork_methods.pin import Constraint, PinnedBuffer
from refork_methods.pin.frameworks.langchain import PinningMiddleware
from refork_methods.pin.frameworks.langchain_messages import from_langchain
from refork_methods.pin.frameworks.langchain_model import pinned_model

INPUTS = {
    "a text": "hi",
    "a pair": [("user", "hi")],
    "a dict": [{"role": "user", "content": "hi"}],
    "a message": [HumanMessage("hi")],
    "a tuple of them": (HumanMessage("hi"),),
    "a prompt": StringPromptValue(text="hi"),
    "a text among messages": ["hi"],
}


def shown(model, number=-1):
    return [(m["role"], m["content"]) for m in from_langchain(model.asked[number].messages)]


@pytest.mark.parametrize("given", INPUTS.values(), ids=INPUTS)
def test_all_that_a_model_takes_a_pinned_one_takes(given):
    model = talker()
    pinned = pinned_model(model, BUFFER)
    pinned.invoke(given)
    asyncio.run(pinned.ainvoke(given))
    pinned.batch([given])
    list(pinned.stream(given))
    behind = pinned_model(RunnableLambda(model.invoke), BUFFER)
    behind.invoke(given)
    assert len(model.asked) == 5
    assert all(shown(model, n) == [("system", BUFFER.text), ("user", "hi")] for n in range(5))


def test_a_pinned_model_is_of_its_class_and_in_an_agent_with_tools():
    model = caller()
    pinned = pinned_model(model, BUFFER)
    assert type(pinned) is not type(model)
    assert isinstance(pinned, type(model))
    assert pinned.get_name() == model.get_name()
    create_agent(pinned, [look], system_prompt="Be kind.").invoke({"messages": "hi"})
    assert len(model.asked) == 2
    for question in model.asked:
        assert BUFFER.check(from_langchain(question.messages)).ok
        assert [m.text for m in question.messages[:2]] == ["Be kind.", BUFFER.text]


def test_tools_are_bound_before_or_after():
    model = caller()
    for bound in (
        pinned_model(model.bind_tools([look]), BUFFER),
        pinned_model(model, BUFFER).bind_tools([look]),
    ):
        assert bound.kwargs["tools"][0]["function"]["name"] == "look"
        bound.invoke("hi")
        assert shown(model) == [("system", BUFFER.text), ("user", "hi")]


def test_chains_fallbacks_and_settings_keep_their_pins():
    model, other = talker(), talker()
    prompt = ChatPromptTemplate.from_messages([("system", "Be kind."), ("user", "{text}")])
    pinned_model(prompt | model | (lambda m: m.text), BUFFER).invoke({"text": "hi"})
    assert shown(model) == [("system", "Be kind."), ("system", BUFFER.text), ("user", "hi")]
    broken = GenericFakeChatModel(messages=iter([]))
    pinned_model(broken.with_fallbacks([other]), BUFFER).invoke("hi")
    pinned_model(other.with_retry().with_config(tags=["x"]), BUFFER).invoke("hi")
    assert [shown(other, n)[0] for n in range(2)] == [("system", BUFFER.text)] * 2


def test_a_model_pinned_twice_holds_the_last_rules_alone():
    model = talker()
    first = PinnedBuffer((Constraint("old", "Buy nothing."),))
    pinned_model(pinned_model(model, first), BUFFER).invoke("hi")
    assert shown(model) == [("system", BUFFER.text), ("user", "hi")]
    behind = pinned_model(RunnableLambda(model.invoke), first)
    pinned_model(behind, BUFFER).invoke("hi")
    assert shown(model) == [("system", BUFFER.text), ("user", "hi")]


class Streams(FakeListChatModel):
    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        yield ChatGenerationChunk(message=AIMessageChunk(" | ".join(m.type for m in messages)))


def test_streams_are_pinned_and_a_cache_does_not_answer_for_the_bare_model():
    assert next(pinned_model(Streams(responses=["x"]), BUFFER).stream("hi")).text == "system | human"
    model = FakeListChatModel(responses=["bare", "pinned"], cache=InMemoryCache())
    assert model.invoke("hi").text == "bare"
    assert pinned_model(model, BUFFER).invoke("hi").text == "pinned"
    assert model.invoke("hi").text == "bare"


def test_a_configurable_model_keeps_its_methods(monkeypatch):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    model = init_chat_model("openai:gpt-4o", configurable_fields="any")
    bound = pinned_model(model, BUFFER).bind_tools([look])
    assert bound.first.invoke("hi")[0].text == BUFFER.text
    structured = pinned_model(model, BUFFER).with_structured_output({"title": "x", "type": "object"})
    assert structured.first.invoke("hi")[0].text == BUFFER.text


def test_a_class_that_cannot_be_extended_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(
        "refork_methods.pin.frameworks.langchain_model._pinned_class",
        lambda kind, buffer: type("Other", (), {}),
    )
    with pytest.raises(CannotDo, match="cannot be pinned") as error:
        pinned_model(talker(), BUFFER)
    assert "pinned_messages" in (error.value.hint or "")


# -- real clients against a local server ---------------------------------------------------------------

ANTHROPIC = {
    "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
OPENAI = {
    "id": "m", "object": "chat.completion", "created": 1, "model": "g",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"x": 1}'}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(ANTHROPIC if "messages" in self.path else OPENAI).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}", got
        made.shutdown()
        thread.join()


def client(name, url):
    if name == "anthropic":
        package = pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")
        return package.ChatAnthropic(
            model="claude-test", max_tokens=100, api_key="none", base_url=url, max_retries=0
        )
    package = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    return package.ChatOpenAI(model="gpt-4o", api_key="none", base_url=f"{url}/v1", max_retries=0)


@pytest.mark.parametrize("name", ["anthropic", "openai"])
@pytest.mark.parametrize("placement", ["head", "tail"])
@pytest.mark.parametrize("how", ["model", "middleware"])
@pytest.mark.parametrize("prompt", [None, "Be kind."])
def test_providers_take_the_pin_at_both_places(server, name, placement, how, prompt):
    url, got = server
    buffer = PinnedBuffer(BUFFER.constraints, placement=placement)
    model = client(name, url)
    if how == "model":
        agent = create_agent(pinned_model(model, buffer), system_prompt=prompt)
    else:
        agent = create_agent(model, system_prompt=prompt, middleware=[PinningMiddleware(buffer)])
    agent.invoke({"messages": [("user", "hi"), ("ai", "yes?"), ("user", "go on")]})
    sent = json.dumps(got[-1], ensure_ascii=False)
    assert sent.count(json.dumps(buffer.text, ensure_ascii=False)[1:-1]) == 1
    assert prompt is None or prompt in sent


def test_structured_output_of_a_provider_is_pinned(server):
    url, got = server
    schema = {"title": "x", "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    model = pinned_model(client("openai", url), BUFFER)
    for one in (
        model.with_structured_output(schema, include_raw=True),
        pinned_model(client("openai", url).with_structured_output(schema, include_raw=True), BUFFER),
    ):
        answer = one.invoke("hi")
        assert (answer["parsed"], answer["raw"].text) == ({"x": 1}, '{"x": 1}')
        assert [m["content"] for m in got[-1]["messages"]] == [BUFFER.text, "hi"]
        assert "response_format" in got[-1]


def test_the_source_message_of_an_answer_stays_a_message():
    assert isinstance(pinned_model(talker(), BUFFER).invoke("hi"), AIMessage)
