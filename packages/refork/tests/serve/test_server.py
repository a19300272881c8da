"""The server as OpenAI's own client sees it, in one process."""

import asyncio
import threading
import time

import httpx
import openai
import pytest

from refork.chat import Reply, ScriptedChat
from refork.errors import BadInput, ServerError
from refork.policies.base import Cost
from refork.serve import ServerSettings, create_app
from refork.serve.chat_served import ChatServed
from refork.serve.served import Asked

JSON = {"content-type": "application/json"}
KEYED = ServerSettings(keys=frozenset({"right"}))
HELLO = [{"role": "user", "content": "hello there"}]


class Draws:
    """Says which draw it was asked for, and how many were asking at the same time."""

    name = "draws"

    def __init__(self):
        self.now, self.most, self.lock = 0, 0, threading.Lock()

    def reply(self, messages, *, tools=(), draw=0):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        with self.lock:
            self.now -= 1
        return Reply({"role": "assistant", "content": f"draw {draw}"}, cost=Cost())


def failing(messages):
    raise ServerError("the worker is gone", where="far")


def call(messages):
    function = {"name": "look", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }


MODELS = {
    "echo": ScriptedChat(lambda messages: f"you said {messages[-1]['content']}"),
    "draws": Draws(),
    "gone": ScriptedChat(failing),
    "caller": ScriptedChat(call),
}


@pytest.fixture
def ask():
    """A client of OpenAI's package against the application, under some settings."""
    made = []

    def client(sent="none", settings=None):
        from starlette.testclient import TestClient

        test = TestClient(create_app(MODELS, settings), base_url="http://localhost")
        made.append(test)
        return openai.OpenAI(api_key=sent, base_url="http://localhost/v1", http_client=test, max_retries=0)

    yield client
    for test in made:
        test.close()


def test_models_and_an_answer_with_its_counts(ask):
    client = ask()
    assert [model.id for model in client.models.list()] == ["caller", "draws", "echo", "gone"]
    answer = client.chat.completions.create(model="echo", messages=HELLO)
    assert answer.choices[0].message.content == "you said hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 2
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_unknown_counts_stay_unknown(ask):
    assert ask().chat.completions.create(model="draws", messages=HELLO).usage is None


def test_a_stream_is_the_same_answer(ask):
    events = list(
        ask().chat.completions.create(
            model="echo", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    said = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert said == "you said hello there"
    assert [event.choices[0].finish_reason for event in events if event.choices] == [None, "stop"]
    assert events[-1].usage.prompt_tokens == 2


def test_tool_calls_come_through_whole_and_streamed(ask):
    client = ask()
    answer = client.chat.completions.create(model="caller", messages=HELLO)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.tool_calls[0].function.name == "look"
    first = next(iter(client.chat.completions.create(model="caller", messages=HELLO, stream=True)))
    assert first.choices[0].delta.tool_calls[0].function.name == "look"


def test_a_seed_numbers_the_draw_and_n_goes_on_from_it(ask):
    client = ask()
    answer = client.chat.completions.create(model="draws", messages=HELLO, seed=7, n=3)
    assert [choice.message.content for choice in answer.choices] == ["draw 7", "draw 8", "draw 9"]
    fresh = {
        client.chat.completions.create(model="draws", messages=HELLO).choices[0].message.content
        for _ in "abc"
    }
    assert len(fresh) == 3


def test_two_servers_of_a_chat_model_number_their_own_draws_differently():
    async def answer(model):
        asked = Asked(messages=tuple(HELLO))
        reply = await model.complete(asked)
        async for _ in reply.parts():
            pass
        return reply.choices()[0].text

    assert asyncio.run(answer(ChatServed(Draws()))) != asyncio.run(answer(ChatServed(Draws())))


def test_settings_that_a_model_fixes_itself_are_named_as_ignored(ask):
    raw = ask().chat.completions.with_raw_response.create(
        model="echo", messages=HELLO, temperature=0.2, max_tokens=5
    )
    assert raw.headers["refork-ignored"] == "max_tokens, temperature"
    answer = ask().responses.create(model="echo", input="hello there", temperature=0.2)
    assert (answer.temperature, answer.top_p) == (None, None)


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        ("nobody", openai.NotFoundError, "served here"),
        ("gone", openai.InternalServerError, "the worker is gone"),
    ],
)
def test_errors_are_openais(ask, model, error, says):
    with pytest.raises(error, match=says):
        ask().chat.completions.create(model=model, messages=HELLO)


def test_a_key_is_asked_for(ask):
    with pytest.raises(openai.AuthenticationError):
        ask("wrong", KEYED).chat.completions.create(model="echo", messages=HELLO)
    assert ask("right", KEYED).chat.completions.create(model="echo", messages=HELLO).choices


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"nonsense", "JSON"),
        (b"[]", "body"),
        (b'{"model": "echo"}', "messages"),
        (b'{"model": "echo", "messages": []}', "messages"),
        (b'{"model": "echo", "messages": [{"content": "x"}]}', "role"),
        (b'{"model": "echo", "messages": [{"role": "user"}], "n": 0}', "n:"),
        (b'{"model": "echo", "messages": [{"role": "user"}], "seed": -1}', "seed"),
    ],
)
def test_a_bad_request_names_the_field(body, says):
    from starlette.testclient import TestClient

    with TestClient(create_app(MODELS), base_url="http://localhost") as test:
        answer = test.post("/v1/chat/completions", content=body, headers=JSON)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_a_request_that_is_too_long_is_refused():
    from starlette.testclient import TestClient

    with TestClient(create_app(MODELS, ServerSettings(max_body=10)), base_url="http://localhost") as test:
        answer = test.post("/v1/chat/completions", content=b"x" * 11, headers=JSON)
    assert answer.status_code == 413
    assert "longer" in answer.json()["error"]["message"]


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_model_is_asked_no_more_at_once_than_it_has_lanes(lanes):
    import anyio

    model = Draws()

    async def many():
        transport = httpx.ASGITransport(create_app({"draws": model}, ServerSettings(lanes=lanes)))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            anyio.create_task_group() as group,
        ):
            for _ in range(9):
                group.start_soon(
                    lambda: client.post("/v1/chat/completions", json={"model": "draws", "messages": HELLO})
                )

    anyio.run(many)
    assert 1 <= model.most <= lanes


def test_a_server_of_nothing_is_refused():
    with pytest.raises(BadInput):
        create_app({})


def test_health():
    from starlette.testclient import TestClient

    with TestClient(create_app(MODELS, KEYED), base_url="http://localhost") as test:
        assert test.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("body", [b'{"model": "\xff"}', b"[" * 100_000])
def test_a_body_that_cannot_be_read_at_all_is_the_client_s_fault(body):
    from starlette.testclient import TestClient

    with TestClient(create_app(MODELS), base_url="http://localhost") as test:
        answer = test.post("/v1/chat/completions", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "body" in answer.json()["error"]["message"]
