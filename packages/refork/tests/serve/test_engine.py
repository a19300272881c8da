"""What a server does when readers leave or are slow, and when answers or the engine itself fail."""

import asyncio
import json
import threading
import time

import httpx
import openai
import pytest

from refork.policies.chat import Codec
from refork.sampling.noise import NoiseKey
from refork.serve import create_app, serving
from refork.serve.engine_model import SEEDED, EngineModel
from refork.serve.refusal import BadParameter
from refork.serve.served import Asked
from refork.serve.settings import ServerSettings
from refork.types import token_array
from support.planted_live import PlantedLive, chat_policy, paces, saying

TALK = [{"role": "user", "content": "x"}]


@pytest.fixture(scope="module")
def policy():
    return chat_policy()


def model_of(policy, script, **more):
    live = PlantedLive(script, **more)
    return EngineModel(policy, width=live.width, live=live), live


def test_draws_without_a_seed_are_of_each_model_alone_and_those_with_one_are_not(policy):
    one, other = model_of(policy, endless)[0], model_of(policy, endless)[0]
    fresh = [model._key(None, 0) for model in (one, one, other, other)]
    assert len(set(fresh)) == 4
    assert one._key(5, 2) == other._key(5, 2) == NoiseKey(5, SEEDED, 2)


def test_a_prompt_of_ids_that_have_no_text_is_refused_at_once(policy, monkeypatch):
    monkeypatch.setattr(Codec, "vocabulary", property(lambda codec: 200))
    model, _ = model_of(policy, endless)
    assert asyncio.run(model._prompt(Asked(tokens=token_array([199])))).tolist() == [199]
    with pytest.raises(BadParameter, match="200 is outside the vocabulary of 200"):
        asyncio.run(model._prompt(Asked(tokens=token_array([3, 200]))))


def until(met, seconds=900.0):
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.002)


def endless(ask):
    while True:
        yield 66


def client_of(address):
    return openai.OpenAI(api_key="none", base_url=address, max_retries=0)


def complete(client, prompt="x", **more):
    return client.completions.create(model="m", prompt=prompt, **{"max_tokens": 8, **more})


def test_a_client_who_leaves_frees_his_rows_streamed_waiting_or_whole(policy):
    model, live = model_of(policy, endless, width=3)
    with serving({"m": model}) as address, client_of(address) as client:
        stream = complete(client, n=2, stream=True, max_tokens=500_000)
        next(iter(stream))
        assert model.engine.running == 2
        whole = httpx.Timeout(10, read=0.2)
        with pytest.raises(openai.APITimeoutError):
            complete(client, n=3, max_tokens=500_000, timeout=whole)  # one has a row, two wait for one
        until(lambda: model.engine.running + model.engine.waiting == 2)
        stream.close()
        until(lambda: model.engine.running + model.engine.waiting == 0)
        assert sorted(live.cancelled) == [0, 1, 2, 3, 4]
        assert complete(client).usage.completion_tokens == 8


def test_a_reader_that_does_not_read_stalls_nobody_and_holds_no_more_than_his_limit(policy):
    model, live = model_of(policy, endless)
    head = {"model": "m", "prompt": "x", "stream": True}

    async def read():
        app = create_app({"m": model})
        sent, stuck, said = [], asyncio.Event(), []
        body = json.dumps({**head, "max_tokens": 1500}).encode()

        async def receive():
            if not said:
                said.append(1)
                return {"type": "http.request", "body": body, "more_body": False}
            return await asyncio.Event().wait()

        async def send(event):
            sent.append(event)
            if len(sent) == 3:
                await stuck.wait()

        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
                 "path": "/v1/completions", "raw_path": b"/v1/completions", "root_path": "", "scheme": "http",
                 "query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
                 "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}  # fmt: skip
        slow = asyncio.ensure_future(app(scope, receive, send))
        while len(sent) < 3:
            await asyncio.sleep(0.001)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            answer = await client.post("/v1/completions", json={**head, "stream": False, "max_tokens": 64})
        assert answer.json()["usage"]["completion_tokens"] == 64
        while live.running:
            await asyncio.sleep(0.001)  # the slow one's branch runs on to its limit
        assert len(sent) == 3
        stuck.set()
        await slow
        await model.stop()
        return b"".join(event.get("body", b"") for event in sent), len(sent)

    text, events = asyncio.run(read())
    chunks = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {")]
    assert sum(len(chunk["choices"][0]["text"]) for chunk in chunks) == 1500
    assert events < 20  # what he had not fetched came as one


@pytest.mark.parametrize("streamed", [False, True])
def test_one_answer_that_fails_is_an_error_and_touches_no_other(policy, streamed):
    def script(ask):
        yield 66
        if ask.tokens[0] == policy.encode("b")[0]:
            raise ValueError("its logits are not finite")
        yield from [67, 68, 0]

    model, _ = model_of(policy, script)
    with serving({"m": model}) as address, client_of(address) as client:

        def bad():
            found = complete(client, "b", stream=streamed)
            return "".join(c.choices[0].text for c in found) if streamed else found

        with pytest.raises(openai.APIError, match="its logits are not finite"):
            bad()
        assert complete(client, "a").choices[0].text == complete(client, "a").choices[0].text
        assert httpx.get(address.replace("/v1", "/health")).json() == {"status": "ok"}


def test_a_step_that_fails_ends_what_runs_and_nothing_later(policy, caplog):
    model, live = model_of(policy, saying(policy, "fine"))
    with serving({"m": model}) as address, client_of(address) as client:
        for _ in range(3):
            live.broken = RuntimeError("poison")
            with pytest.raises(openai.InternalServerError, match="engine"):
                complete(client)
            live.broken = None
            assert complete(client).choices[0].text == "fine"
        assert httpx.get(address.replace("/v1", "/health")).json() == {"status": "ok"}
    assert (model.engine.running, model.engine.waiting, live.idle) == (0, 0, True)
    assert "poison" in caplog.text


def test_an_engine_that_fails_ends_every_request_and_says_so(policy, caplog):
    steps = paces()
    model, live = model_of(policy, endless, paces=steps)
    with serving({"m": model}) as address, client_of(address) as client:
        steps.release(2)
        stream = complete(client, stream=True, max_tokens=100)
        got, failed = [], []

        def read():
            try:
                got.extend(stream)
            except openai.APIError as error:
                failed.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: got)
        live.broken = MemoryError("no room")
        steps.release(100)
        reader.join(900)
        assert "engine" in str(failed[0])
        for _ in range(8):  # it tries again some times, and then no more
            with pytest.raises(openai.InternalServerError, match="engine"):
                complete(client)
        health = httpx.get(address.replace("/v1", "/health"))
        assert (health.status_code, health.json()["status"]) == (503, "broken")
        assert "no room" in health.json()["models"]["m"]
    assert "no room" in caplog.text


def test_a_server_that_stops_ends_what_runs(policy):
    model, _ = model_of(policy, endless, paces=(steps := paces()))
    steps.release(3)
    ended = []
    with serving({"m": model}, ServerSettings(port=0, drain_s=0.2)) as address:
        client = client_of(address)
        stream = complete(client, stream=True, max_tokens=10**6)

        def read():
            try:
                list(stream)
            except (openai.APIError, httpx.HTTPError) as error:
                ended.append(error)

        next(iter(stream))
        reader = threading.Thread(target=read)
        reader.start()
        steps.release(10**5)
    reader.join(900)
    assert not reader.is_alive()
    assert ended
    assert (model.engine.running, model.engine.waiting) == (0, 0)
    client.close()


def test_tools_are_called_whole_and_streamed(policy):
    text = 'Let me see.\n<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    model, _ = model_of(policy, saying(policy, text))
    with serving({"m": model}) as address, client_of(address) as client:
        ask = {"model": "m", "messages": TALK, "tools": tools, "max_tokens": 200}
        (choice,) = client.chat.completions.create(**ask).choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.\n")
        (call,) = choice.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"at": 1})
        with client.chat.completions.stream(**ask) as stream:
            (again,) = stream.get_final_completion().choices
        assert again.message.content == choice.message.content
        assert again.message.tool_calls[0].function.arguments == call.function.arguments
        (plain,) = client.chat.completions.create(**ask | {"tool_choice": "none"}).choices
        assert (plain.message.content, plain.message.tool_calls) == (text, None)
        told = [*TALK, choice.message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": "done"}]  # fmt: skip
        assert client.chat.completions.create(**ask | {"messages": told}).usage.prompt_tokens > 100


def test_a_response_calls_functions_and_its_events_are_openais(policy):
    text = 'So:\n<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]
    model, _ = model_of(policy, saying(policy, text))
    with serving({"m": model}) as address, client_of(address) as client:
        ask = {"model": "m", "input": "x", "tools": tools}
        answer = client.responses.create(**ask)
        assert [item.type for item in answer.output] == ["message", "function_call"]
        assert (answer.output_text, answer.output[1].name) == ("So:\n", "look")
        assert answer.usage.output_tokens == answer.usage.total_tokens - answer.usage.input_tokens
        with client.responses.stream(**ask) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        assert [kind for i, kind in enumerate(kinds) if kind != (kinds[i - 1] if i else "")] == [
            "response.created", "response.in_progress", "response.output_item.added",
            "response.content_part.added", "response.output_text.delta", "response.output_text.done",
            "response.content_part.done", "response.output_item.done", "response.output_item.added",
            "response.function_call_arguments.delta", "response.function_call_arguments.done",
            "response.output_item.done", "response.completed",
        ]  # fmt: skip
        assert final.output_text == "So:\n"
        assert final.output[1].arguments == answer.output[1].arguments
        talk = [{"role": "user", "content": "x"}, answer.output[1].model_dump(),
                {"type": "function_call_output", "call_id": "1", "output": "done"}]  # fmt: skip
        assert client.responses.create(model="m", input=talk, max_output_tokens=3).status == "incomplete"
