"""The gate alone, in front of small applications: what it lets through, and what it puts down."""

import asyncio
import json

import pytest

from refork.serve.gate import Gate
from refork.serve.guard import LEFT, Guard
from refork.serve.settings import ServerSettings

#: What every request here carries.
HERE = ((b"host", b"localhost"), (b"content-type", b"application/json"))


class Seen(list):
    """Who counts requests."""

    def request(self, route, method, status, seconds):
        self.append((route, method, status))


def ask(
    app, settings=None, *, method="POST", path="/v1/x", headers=(), body=(b"{}",), after=None, stuck=False
):
    """One request through the guard: status, body, headers, what was counted.

    ``body``: its parts. After them the client waits, or leaves (``after``); a None part never comes.
    ``stuck``: the client reads nothing.
    """
    sent, seen = [], Seen()
    parts = list(body)

    async def receive():
        if parts:
            part = parts.pop(0)
            if part is None:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        if after != "leave":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(event):
        if stuck and event["type"] == "http.response.body":
            await asyncio.Event().wait()
        sent.append(event)

    raw = [*HERE, *((name.lower().encode(), value.encode("latin-1")) for name, value in headers)]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    guard = Guard(app, settings=settings or ServerSettings(), gate=Gate(), counting=seen)
    asyncio.run(guard(scope, receive, send))
    start = next((event for event in sent if event["type"] == "http.response.start"), None)
    told = {} if start is None else {k.decode(): v.decode() for k, v in start["headers"]}
    text = b"".join(event.get("body", b"") for event in sent)
    return (start or {}).get("status"), text, told, seen


async def echo(scope, receive, send):
    event = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": event["body"]})


class Sleeper:
    """Streams one event, or nothing, and sleeps until it is put down."""

    def __init__(self, kind=None):
        self.kind, self.ended = kind, None

    async def __call__(self, scope, receive, send):
        try:
            if self.kind is not None:
                headers = [(b"content-type", self.kind)]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            await send({"type": "http.response.body", "body": b"too late"})
            raise


def quick(**change):
    return ServerSettings(**{"timeout_s": 0.02, "body_s": 0.02, **change})


def test_a_request_passes_with_its_body_whole():
    status, body, _, seen = ask(echo, body=(b"ab", b"", b"cd"))
    assert (status, body) == (200, b"abcd")
    assert seen == [("other", "POST", 200)]


def test_a_body_over_the_limit_is_refused_by_its_length_and_when_it_comes_in_chunks():
    small = ServerSettings(max_body=4)
    lengths = [((("content-length", length),), (None,)) for length in ("5", "9" * 5000)]
    for headers, parts in (*lengths, ((), (b"abc", b"de", None))):
        status, body, told, _ = ask(echo, small, headers=headers, body=parts)
        assert status == 413
        assert told["connection"] == "close"
        assert json.loads(body)["error"]["code"] == "request_too_large"
    assert ask(echo, small, body=(b"abcd",))[0] == 200
    for length in ("²", "0" * 5000 + "4"):
        assert ask(echo, small, headers=(("content-length", length),), body=(b"abcd",))[0] == 200


def test_a_length_that_lies_does_not_help():
    assert (
        ask(echo, ServerSettings(max_body=4), headers=(("content-length", "1"),), body=(b"abcde",))[0] == 413
    )
    assert ask(echo, ServerSettings(max_body=4), headers=(("content-length", "-7"),), body=(b"ab",))[0] == 200


def test_a_body_that_does_not_come_times_out():
    status, body, told, seen = ask(echo, quick(), body=(b"{", None))
    assert status == 408
    assert json.loads(body)["error"]["code"] == "request_timeout"
    assert told["connection"] == "close"
    assert seen[0][2] == 408


def test_a_key_is_asked_for_before_the_body_is_read():
    keyed = ServerSettings(keys=frozenset({"right"}))
    status, body, told, _ = ask(echo, keyed, body=(None,))
    assert status == 401
    assert told["www-authenticate"] == "Bearer"
    assert json.loads(body)["error"]["code"] == "invalid_api_key"
    assert ask(echo, keyed, headers=(("Authorization", "Bearer right"),))[0] == 200
    assert ask(echo, keyed, method="GET", path="/metrics")[0] == 401
    assert ask(echo, keyed, method="GET", path="/health")[0] == 200


@pytest.mark.parametrize("after", [None, "leave"])
def test_no_answer_in_time_is_an_error_and_its_work_is_put_down(after):
    app = Sleeper()
    status, body, _, seen = ask(app, quick(), after=after)
    assert app.ended == "cancelled"
    if after == "leave":
        assert status is None
        assert seen == [("other", "POST", LEFT)]
    else:
        assert status == 504
        assert json.loads(body)["error"]["code"] == "timeout"


def test_a_stream_out_of_time_ends_with_an_error_event():
    app = Sleeper(b"text/event-stream; charset=utf-8")
    status, body, _, seen = ask(app, quick())
    assert status == 200
    first, last = body.decode().split("\n\n")[:2]
    assert first == "data: 1"
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
    assert app.ended == "cancelled"
    assert seen[0][2] == 200


def test_a_reader_who_reads_nothing_does_not_hold_the_server(monkeypatch):
    monkeypatch.setattr("refork.serve.guard._PARTING_S", 0.01)
    app = Sleeper(b"text/event-stream")
    ask(app, quick(), stuck=True)
    assert app.ended == "cancelled"


def test_a_client_who_leaves_in_mid_stream_takes_his_work_along():
    app = Sleeper(b"text/event-stream")
    _, body, _, _ = ask(app, ServerSettings(), after="leave")
    assert app.ended == "cancelled"
    assert b"too late" not in body


def test_a_client_who_leaves_before_his_body_is_whole_never_reaches_the_application():
    reached = []

    class Noting:
        async def __call__(self, scope, receive, send):
            reached.append("application")

    async def receive():
        return {"type": "http.disconnect"}

    async def send(event):
        reached.append("client")

    scope = {"type": "http", "method": "POST", "path": "/", "headers": HERE}
    asyncio.run(Guard(Noting(), settings=ServerSettings(), gate=Gate())(scope, receive, send))
    assert reached == []


def test_an_error_of_the_application_goes_on_to_its_own_handlers():
    async def broken(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(broken)


def test_a_servers_own_life_passes_and_a_websocket_does_not():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    async def send(event):
        seen.append(event["type"])

    guard = Guard(app, settings=ServerSettings(), gate=Gate())
    asyncio.run(guard({"type": "lifespan"}, None, None))
    asyncio.run(guard({"type": "websocket", "headers": HERE}, None, send))
    assert seen == ["lifespan", "websocket.close"]
