"""Who is answered: the server's own names, no other page, JSON alone; on every route of every application."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("mcp")

from starlette.testclient import TestClient

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork.policies.open import open_policy
from refork.serve import create_app
from refork.serve.gate import Gate
from refork.serve.refusal import Refused
from refork.serve.settings import ServerSettings
from refork.viewer.live.api import create_viewer_app
from refork.viewer.live.shelf import Shelf
from refork.worlds.open import open_world
from refork_methods.simulate.world import WorldModel
from support.repository import ROOT

PACKAGES = ROOT / "packages"
#: Of all packages: a listener in a method is one, too.
TEXTS = {
    file.relative_to(PACKAGES).as_posix().partition("/src/")[2]: file.read_text("utf-8")
    for file in PACKAGES.glob("*/src/**/*.py")
}
HERE = "127.0.0.1:8000"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def refused(gate=None, method="GET", host=HERE, kind="application/json", **headers):
    """The status that a gate refuses with; None: it lets the request on. A header may be there twice."""
    given = {"host": host, "content-type": kind} | {k.replace("_", "-"): v for k, v in headers.items()}
    raw = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        raw += [(name.encode(), one.encode()) for one in values]
    try:
        (gate or Gate()).check({"method": method, "headers": raw})
    except Refused as refusal:
        return refusal.status
    return None


class TestTheGate:
    @pytest.mark.parametrize(
        "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]"]
    )
    def test_a_machine_answers_under_its_own_names(self, host):
        assert refused(host=host) is None

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "", "[::1", "10.0.0.1",
            "0", "evil.example#localhost", "evil.example@localhost", "localhost:80:80", "localhost ",
            "0.0.0.0", None, ["localhost", "localhost"], ["localhost", "evil.example"],
        ],
    )  # fmt: skip
    def test_and_under_no_other(self, host):
        assert refused(host=host) == 403

    @pytest.mark.parametrize(
        ("gate", "yes", "no"),
        [
            (Gate(host="10.1.2.3"), ["10.1.2.3:80", "127.0.0.1"], ["10.1.2.4", "evil.example"]),
            (Gate(host="Lab.example"), ["lab.example:8000"], ["evil.example", "10.1.2.3"]),
            (Gate(host="0.0.0.0"), ["10.1.2.3", "[fe80::1]:80", "localhost"], ["evil.example", "lab"]),
            (Gate(host="::"), ["10.1.2.3", "[fe80::1]:80"], ["evil.example"]),
            (Gate(host=""), ["10.1.2.3"], ["evil.example"]),
            (Gate(names=frozenset({"Lab.example"})), ["lab.example:443", "LAB.example"], ["evil.example"]),
            (Gate(keyed=True), ["lab.example", "10.1.2.3"], ["", "a b"]),
            (Gate(keyed=True, names=frozenset({"lab"})), ["lab", "localhost"], ["evil.example"]),
        ],
    )
    def test_more_names(self, gate, yes, no):
        assert [refused(gate, host=host) for host in yes] == [None] * len(yes)
        assert [refused(gate, host=host) for host in no] == [403] * len(no)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"origin": f"http://{HERE}"},
            {"origin": f"https://{HERE}"},
            {"sec_fetch_site": "none"},
            {"sec_fetch_site": "same-origin", "origin": f"http://{HERE}"},
            {"sec_fetch_site": "same-origin", "origin": "https://behind-a-proxy.example"},
        ],
    )
    def test_programs_and_its_own_page_ask(self, headers):
        for method in METHODS:
            assert refused(method=method, **headers) is None

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:9999"},
            {"origin": f"http://{HERE}.evil.example"},
            {"origin": f"http://evil.example@{HERE}"},
            {"origin": [f"http://{HERE}", "http://evil.example"]},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"sec_fetch_site": "Same-Origin"},
            {"sec_fetch_site": ["same-origin", "cross-site"]},
            {"sec_fetch_site": "none", "origin": "http://evil.example"},
            {"sec_fetch_site": "cross-site", "origin": f"http://{HERE}"},
            {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        ],
    )
    def test_other_pages_do_not(self, headers):
        for method in METHODS:
            assert refused(method=method, **headers) == 403
            assert refused(Gate(keyed=True), method=method, **headers) == 403

    def test_default_ports_are_no_difference(self):
        assert refused(host="localhost", origin="http://localhost") is None
        assert refused(host="localhost:80", origin="http://localhost") is None
        assert refused(host="localhost", origin="https://localhost") is None

    def test_sites_that_were_named_ask_from_elsewhere(self):
        gate = Gate(origins=frozenset({"https://Chat.example", "app://notes"}))
        for origin in ("https://chat.example", "https://chat.example:443", "app://notes"):
            assert refused(gate, "POST", sec_fetch_site="cross-site", origin=origin) is None
        for origin in ("http://chat.example", "https://chat.example:8443", "https://evil.example", "null"):
            assert refused(gate, "POST", sec_fetch_site="cross-site", origin=origin) == 403
        assert refused(gate, host="evil.example", origin="https://chat.example") == 403

    @pytest.mark.parametrize(
        "kind",
        [
            None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
            "text/plain; application/json", "application/jsonp", "application/json, text/plain",
            ["application/json", "text/plain"],
        ],
    )  # fmt: skip
    def test_what_a_page_may_send_unasked_changes_nothing(self, kind):
        assert [refused(method=method, kind=kind) for method in ("POST", "PUT", "PATCH")] == [415] * 3
        assert [refused(method=method, kind=kind) for method in ("GET", "HEAD", "DELETE")] == [None] * 3

    def test_json_however_it_is_spelled(self):
        for kind in ("application/json", "application/json;charset=utf-8", "Application/JSON ; a=b"):
            assert refused(method="POST", kind=kind) is None

    @pytest.mark.parametrize(
        "wrong",
        [
            {"names": {"lab:80"}}, {"names": {"*"}}, {"names": {""}}, {"names": {"http://lab"}},
            {"origins": {"*"}}, {"origins": {"null"}}, {"origins": {"chat.example"}},
            {"origins": {"https://chat.example/"}}, {"origins": {"https://*.example"}},
            {"origins": {"https://chat.example:99999"}},
        ],
    )  # fmt: skip
    def test_lists_that_name_nobody_are_refused(self, wrong):
        with pytest.raises(BadInput, match=r"no host's name|no origin"):
            Gate(**{name: frozenset(values) for name, values in wrong.items()})
        with pytest.raises(BadInput):
            ServerSettings(**{name.replace("names", "hosts"): frozenset(v) for name, v in wrong.items()})


@pytest.fixture(scope="module")
def apps(told):
    """Every application of the package, by name, and a list of what reached the server's model."""
    asked = []

    def answer(messages):
        asked.append(messages)
        return "a secret"

    simulated = {"tools": WorldModel(open_policy("scripted:coin")).world(open_world("tools:library"))}
    chat = ScriptedChat(answer, "m")
    made = {
        "server": create_app({"m": chat}, worlds=simulated),
        "keyed": create_app({"m": chat}, ServerSettings(keys=frozenset({"k"})), worlds=simulated),
        "viewer": create_viewer_app(Shelf([told.file])),
    }
    return made, asked


def routes(app):
    """Every path and method of an application, those that no route has included."""
    paths = {re.sub(r"\{(\w+)(:\w+)?\}", "tools", route.path) for route in app.routes}
    return [(path, method) for path in sorted(paths | {"/nothing"}) for method in METHODS]


def answers(app, requests):
    """What an application answers to (method, path, headers, body), in order."""

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HERE}") as client:
            return [
                await client.request(method, path, headers=headers, content=body)
                for method, path, headers, body in requests
            ]

    return asyncio.run(ask())


def test_no_route_answers_another_page_or_another_name(apps):
    made, asked = apps
    json_kind = {"content-type": "application/json"}
    for name, app in made.items():
        wrong = [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}]
        wrong += [] if name == "keyed" else [{"host": "evil.example:8000"}]
        requests = [
            (method, path, json_kind | headers, b"{}") for path, method in routes(app) for headers in wrong
        ]
        assert len(requests) > 5 * len(METHODS) * len(wrong)
        for (method, path, *_), got in zip(requests, answers(app, requests), strict=True):
            assert got.status_code == 403, (name, method, path)
            assert method == "HEAD" or got.json()["error"]["code"] == "not_from_here"
            assert got.headers["cross-origin-resource-policy"] == "same-origin"
            assert not [told for told in got.headers if told.startswith("access-control")]
    assert asked == []


def test_no_route_takes_what_is_not_json(apps):
    made, asked = apps
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}'
    kinds = (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for name, app in made.items():
        key = {"authorization": "Bearer k"}
        requests = [
            (method, path, key if kind is None else key | {"content-type": kind}, body)
            for path, method in routes(app)
            if method in ("POST", "PUT", "PATCH")
            for kind in kinds
        ]
        for (method, path, *_), got in zip(requests, answers(app, requests), strict=True):
            assert got.status_code == 415, (name, method, path)
    assert asked == []


def test_what_is_asked_as_a_client_asks_is_answered(apps):
    """The tests above would hold of a server that refuses everything."""
    made, asked = apps
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    for name, headers in (("server", {}), ("keyed", {"authorization": "Bearer k", "host": "lab.example"})):
        with TestClient(made[name], base_url=f"http://{HERE}") as client:
            assert "a secret" in client.post("/v1/chat/completions", json=body, headers=headers).text
            assert client.get("/v1/worlds", headers=headers).status_code == 200
    assert len(asked) == 2
    with TestClient(made["viewer"], base_url=f"http://{HERE}") as client:
        assert client.get("/api/trees").status_code == 200


def test_every_answer_forbids_what_no_page_needs(apps):
    paths = ("/", "/web/page.css", "/health", "/api/trees", "/api/tree?tree=none", "/v1/models", "/nothing")
    for app in apps[0].values():
        for got in answers(app, [("GET", path, {}, b"") for path in paths]):
            assert got.headers["content-security-policy"].startswith("default-src 'none'")
            assert got.headers["x-content-type-options"] == "nosniff"
            assert got.headers["cache-control"] == "no-store"


def test_a_named_site_may_ask_and_read_and_no_other():
    site = "https://chat.example"
    settings = ServerSettings(origins=frozenset({site}), keys=frozenset({"k"}))
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with TestClient(create_app({"m": ScriptedChat(str, "m")}, settings), base_url="http://lab") as client:
        for origin, allowed in (
            ("https://chat.example", "https://chat.example"),
            ("https://evil.example", None),
        ):
            cross = {"origin": origin, "sec-fetch-site": "cross-site"}
            before = client.options("/v1/chat/completions", headers=cross | asks)
            assert before.headers.get("access-control-allow-origin") == allowed
            got = client.get("/v1/models", headers=cross | {"authorization": "Bearer k"})
            assert got.status_code == (200 if allowed else 403)
            assert got.headers.get("access-control-allow-origin") == allowed
            assert "access-control-allow-credentials" not in got.headers
        keyless = client.get("/v1/models", headers={"origin": site})
        assert keyless.status_code == 401


@pytest.mark.parametrize(
    ("made", "only"),
    [
        (r"\bFastAPI\(|\bStarlette\(", {"refork/serve/web.py"}),
        # A program's proxy wants a password that the program alone has, on this machine alone. Requests whose
        # TLS it ends go to the endpoint, and no further than their host.
        (r"\buvicorn\.(Config|Server|run)\(", {"refork/serve/local.py", "refork/agents/proxy.py"}),
        (r"\bhttp\.server\b|\bsocketserver\b|\bwsgiref\b|\bhypercorn\b|\bFastMCP\b|\bMCPServer\b", set()),
        (
            r"\bcreate_server\(|\bstart_server\(|\bstart_unix_server\(",
            {"refork/serve/local.py", "refork/agents/proxy.py"},
        ),
        (r"\bstart_http_server\(|\bmake_server\(", set()),
        # The arena attacks our own sandbox, and speaks no HTTP. A contained program has a network of its own:
        # a port in it passes bytes on to the endpoint of its model.
        (
            r"\.listen\(",
            {
                "refork/sandbox/inside/overlay.py",
                "refork_testbed/sandbox/arena.py",
                "refork_testbed/sandbox/attempts.py",
            },
        ),
    ],
)
def test_there_is_no_other_way_to_listen(made, only):
    """An application that is not made by ``application`` has no gate; a new listener shows up here."""
    assert {name for name, text in TEXTS.items() if re.search(made, text)} == only
