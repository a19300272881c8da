"""A program that names its provider's address itself: recorded, replayed and forked through a proxy."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents import provider as fake
from agents.containing import contained_or_skip
from agents.test_repeatable import another_day
from refork import agents
from refork.agents.endpoint import _trusted as whom_we_trust
from refork.agents.endpoint import listening
from refork.agents.program import RecordSettings
from refork.agents.proxy import LocalProxy, SessionAuthority, hosts_of
from refork.cli.agent import app
from refork.errors import BadInput, CannotDo
from refork.tree import Tree

pytest.importorskip("cryptography")
KEY = "sk-live-0123456789abcdefghijklmnop"
OPENAI = """
import openai
client = openai.OpenAI(base_url="https://api.openai.com/v1", api_key=KEY)
talk = [{"role": "user", "content": "hello"}]
first = client.chat.completions.create(model="m", messages=talk).choices[0].message.content
talk += [{"role": "assistant", "content": first}, {"role": "user", "content": "and?"}]
parts = client.chat.completions.create(model="m", messages=talk, stream=True)
print(first, "".join(part.choices[0].delta.content or "" for part in parts if part.choices))
"""
#: By other packages than a provider's own.
CLIENTS = {
    "urllib": """
import json, urllib.request as web
request = web.Request("https://api.openai.com/v1/chat/completions", json.dumps(ASKED).encode())
request.add_header("content-type", "application/json")
request.add_header("authorization", "Bearer " + KEY)
print(json.load(web.urlopen(request))["choices"][0]["message"]["content"])
""",
    "requests": """
import requests
answer = requests.post("https://api.openai.com/v1/chat/completions", json=ASKED, headers={"x-api-key": KEY})
print(answer.json()["choices"][0]["message"]["content"])
""",
    "httpx": """
import asyncio, httpx
async def ask():
    async with httpx.AsyncClient(headers={"x-api-key": KEY}) as client:
        return await client.post("https://api.openai.com/v1/chat/completions", json=ASKED)
print(asyncio.run(ask()).json()["choices"][0]["message"]["content"])
""",
}
BEGIN = f"KEY = {KEY!r}\nASKED = {{'model': 'm', 'messages': [{{'role': 'user', 'content': 'hi'}}]}}\n"


class Elsewhere(BaseHTTPRequestHandler):
    """A server of this machine that is none of models: it answers by HTTPS, with its own certificate."""

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        body = b"from elsewhere"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, dict(self.headers)))
        whole, pieces = fake.chat(f"answer {len(self.server.asked)}")
        body = b"".join(pieces) if asked.get("stream") else json.dumps(whole).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


@contextmanager
def elsewhere(authority=None):
    """That server while inside; with an authority it speaks TLS, as localhost."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    server.asked = []
    if authority is not None:
        server.socket = authority.context("localhost").wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def upstream(tmp_path, monkeypatch):
    """A provider that speaks TLS, in place of api.openai.com, and is believed by this machine."""
    authority = SessionAuthority()
    (tmp_path / "theirs.pem").write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "theirs.pem"))
    whom_we_trust.cache_clear()
    with elsewhere(authority) as server:
        yield server
    whom_we_trust.cache_clear()


def through(server, **more):
    """Settings with which what is asked of api.openai.com goes to a server of ours."""
    there = f"api.openai.com=https://localhost:{server.server_address[1]}"
    return RecordSettings(proxy_hosts=(there,), **more)


def recorded(tree, folder, code, settings):
    (folder / "agent.py").write_text(BEGIN + code)
    run = agents.record(tree, [sys.executable, "agent.py"], folder=folder, quiet=True, settings=settings)
    assert run.exit == 0, run.output
    return agents.find_run(tree, run.id)


def test_a_program_with_a_fixed_address_is_recorded_replayed_and_forked(tmp_path, upstream):
    pytest.importorskip("openai")
    with Tree.open(tmp_path / "tape.db") as tree:
        run = recorded(tree, tmp_path, OPENAI, through(upstream, repeatable=True))
        assert run.output == "answer 1 answer 2\n"
        shown = CliRunner().invoke(app, ["show", str(tmp_path / "tape.db")])
        assert "through a proxy: api.openai.com" in shown.stderr
        # A tape may be a stranger's: where keys would go is said, whatever comes of it.
        asked = [
            "fork",
            str(tmp_path / "tape.db"),
            "--step",
            "1",
            "--change",
            "text:no such=>x",
            "--rerun-tools",
        ]
        told = CliRunner().invoke(app, asked)
        assert (
            f"what it asks of api.openai.com goes to https://localhost:{upstream.server_address[1]}"
            in told.stderr
        )
        first, second = agents.exchanges(tree, run)
        assert (first["asked"], first["said"], second["asked"]) == ("hello", "answer 1", "and?")
        assert [path for path, _ in upstream.asked] == ["/v1/chat/completions"] * 2
        assert {headers["authorization"] for _, headers in upstream.asked} == {f"Bearer {KEY}"}
        assert not any("proxy" in name.lower() for _, headers in upstream.asked for name in headers)
        # Certificates are believed by the real clock, whatever day it is for the program.
        told = agents.replay(tree, another_day(tree, run), quiet=True)
        assert told.identical, told.sentence
        assert (told.byte_equal, told.output_equal, len(upstream.asked)) == (2, True, 2)
        arms = agents.fork_run(tree, run, 1, agents.ProgramChange("again"), 1)
        texts = [tree.node(arm.draws[0].leaf).text for arm in arms]
        assert texts == ["answer 1 answer 2\n", "answer 1 answer 3\n"]
        assert len(upstream.asked) == 3
    raw = (tmp_path / "tape.db").read_bytes()
    assert KEY.encode() not in raw
    assert b"PRIVATE KEY" not in raw


@pytest.mark.parametrize("client", CLIENTS)
def test_other_clients_find_the_proxy_and_believe_it(tmp_path, upstream, client):
    if client != "urllib":
        pytest.importorskip(client)
    with Tree.open(tmp_path / "tape.db") as tree:
        run = recorded(tree, tmp_path, CLIENTS[client], through(upstream))
        assert run.output == "answer 1\n"
        told = agents.replay(tree, run, quiet=True)
        assert (told.identical, told.byte_equal, len(upstream.asked)) == (True, 1, 1), told.sentence
    assert KEY.encode() not in (tmp_path / "tape.db").read_bytes()


def test_a_server_is_asked_in_place_of_the_host(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (provider, to):
        (tmp_path / "agent.py").write_text(BEGIN + CLIENTS["urllib"].replace("openai.com/v1", "x.ai/api/v1"))
        how = RecordSettings(proxy_hosts=("api.x.ai",))
        command = [sys.executable, "agent.py"]
        run = agents.record(tree, command, to=f"{to}/v1", folder=tmp_path, quiet=True, settings=how)
        assert (run.output, provider.asked[0][0]) == ("answer 1\n", "/v1/chat/completions")


#: Asks a model through the endpoint, and others beside it: by TLS, and in the clear.
BESIDE = """
import base64, http.client, os, ssl, sys, urllib.parse as parts, urllib.request as web, json
proxy = parts.urlsplit(os.environ["HTTPS_PROXY"])
assert os.environ["ALL_PROXY"] == os.environ["https_proxy"] == proxy.geturl()

pair = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
word = {"Proxy-Authorization": "Basic " + pair}

def tunnel(port, told=word):
    line = http.client.HTTPSConnection(proxy.hostname, proxy.port, context=ssl.create_default_context())
    line.set_tunnel("localhost", port, told)
    line.request("GET", "/x")
    return line.getresponse().read().decode()

def clear(port):
    line = http.client.HTTPConnection(proxy.hostname, proxy.port)
    told = {**word, "Authorization": "mine", "Proxy-Connection": "keep-alive"}
    line.request("GET", f"http://localhost:{port}/y?z=1", headers=told)
    return line.getresponse().read().decode()

for name, ask in (("tunnel", lambda: tunnel(int(sys.argv[1]))), ("clear", lambda: clear(int(sys.argv[2]))),
                  ("nobody", lambda: tunnel(int(sys.argv[1]), {}))):
    try:
        print(name, ask())
    except OSError as error:
        print(name, error)
request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(ASKED).encode())
request.add_header("content-type", "application/json")
web.urlopen(request)
"""


def test_all_else_passes_untouched_and_nobody_else_is_let_in(tmp_path, upstream, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://localhost:{upstream.server_address[1]}/v1")
    (tmp_path / "agent.py").write_text(BEGIN + BESIDE)
    with elsewhere() as clear, Tree.open(tmp_path / "tape.db") as tree:
        ports = [str(one.server_address[1]) for one in (upstream, clear)]
        command = [sys.executable, "agent.py", *ports]
        run = agents.record(tree, command, folder=tmp_path, quiet=True, settings=RecordSettings(proxy=True))
        said = dict(line.split(" ", 1) for line in run.output.splitlines())
        assert (said["tunnel"], said["clear"]) == ("from elsewhere", "from elsewhere")
        assert "407" in said["nobody"]
        ((path, headers),) = clear.asked
        assert (path, headers["Authorization"]) == ("/y?z=1", "mine")
        assert not any("proxy" in name.lower() for name in headers)
        # Seen, and not recorded: only models are.
        assert agents.counts(tree, run)["exchanges"] == 1
        contained_or_skip()
        with agents.ContainedRun(tree, agents.find_run(tree, None)) as inside:
            told = agents.replay(tree, agents.find_run(tree, None), quiet=True, contained=inside)
        assert told.identical, told.sentence  # the models are reached
        assert told.output_equal is False
        asked = [path for path, _ in (*upstream.asked, *clear.asked)]
        assert sorted(asked) == ["/v1/chat/completions", "/x", "/y?z=1"]  # the others are not


class Endless:
    """Answers with a stream that does not end, until the program is gone."""

    def __init__(self):
        self.asked, self.gone = [], threading.Event()

    async def answer(self, wire, headers, reply):
        self.asked.append(wire.path)
        await reply.begin(200, {"content-type": "text/event-stream"})
        while not reply.gone:
            await reply.piece(b"data: more\n\n")
            await asyncio.sleep(0.001)
        self.gone.set()

    async def close(self):
        """Nothing."""


def test_pieces_come_as_they_are_made_and_who_leaves_is_missed():
    httpx = pytest.importorskip("httpx")
    endless = Endless()
    with LocalProxy({"api.openai.com": ""}, {}) as proxy, listening(endless, None, proxy):
        told = proxy.variables()
        believes = ssl.create_default_context(cafile=told["SSL_CERT_FILE"])
        with (
            httpx.Client(proxy=told["HTTPS_PROXY"], verify=believes, trust_env=False) as client,
            client.stream("POST", "https://api.openai.com/v1/responses", json={}) as answer,
        ):
            assert next(answer.iter_lines()) == "data: more"
        assert endless.gone.wait(60)
    assert endless.asked == ["api.openai.com/v1/responses"]


def test_a_proxy_that_the_machine_has_is_asked_for_the_rest():
    async def both():
        with LocalProxy({}, {}) as outer:
            given = {"https_proxy": outer.variables()["HTTPS_PROXY"], "NO_PROXY": "127.0.0.1"}
            with LocalProxy({}, given) as inner, elsewhere() as server:
                for one in (outer, inner):
                    await one.begin(None)
                pair = inner.variables()["HTTPS_PROXY"].split("//")[1].split("@")[0]
                word = base64.b64encode(pair.encode()).decode()
                said = []
                for host in ("localhost", "127.0.0.1"):
                    reader, writer = await asyncio.open_connection("127.0.0.1", inner.port)
                    where = f"{host}:{server.server_address[1]}"
                    writer.write(
                        f"CONNECT {where} HTTP/1.1\r\nProxy-Authorization: Basic {word}\r\n\r\n".encode()
                    )
                    said.append(await reader.readuntil(b"\r\n\r\n"))
                    if b"200" in said[-1]:
                        writer.write(b"GET /x HTTP/1.0\r\n\r\n")
                        said[-1] += await reader.read()
                    writer.close()
                for one in (inner, outer):
                    await one.end()
                return inner.passed, outer.passed, said

    inner, outer, said = asyncio.run(both())
    assert (inner, outer) == ({"localhost", "127.0.0.1"}, {"localhost"})
    assert [one.endswith(b"from elsewhere") for one in said] == [True, True]


def test_keys_are_in_no_file_and_each_run_has_an_authority_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "mine.pem").write_bytes(SessionAuthority().certificate)
    given = {"REQUESTS_CA_BUNDLE": str(tmp_path / "mine.pem")}
    with LocalProxy({"api.openai.com": ""}, given) as one, LocalProxy({}, {}) as other:
        one._authority.context("api.openai.com")
        told, others = one.variables(), other.variables()
        assert told["HTTPS_PROXY"] != others["HTTPS_PROXY"]
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert len(files) == 3
        assert not any(b"PRIVATE" in file.read_bytes() for file in files)
        # What the machine believes, what it was told to believe, and us.
        text = Path(told["SSL_CERT_FILE"]).read_bytes()
        assert one._authority.certificate in text
        assert (tmp_path / "mine.pem").read_bytes() in text
        assert other._authority.certificate not in text
    assert [file.name for file in tmp_path.rglob("*")] == ["mine.pem"]


def test_certificates_are_what_strict_clients_want(tmp_path):
    authority = SessionAuthority()
    for host in ("api.openai.com", "127.0.0.1"):
        server = authority.context(host)
        client = ssl.create_default_context(cadata=authority.certificate.decode())
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        ours, theirs, back = ssl.MemoryBIO(), ssl.MemoryBIO(), None
        one = client.wrap_bio(theirs, ours, server_hostname=host)
        two = server.wrap_bio(ours, theirs, server_side=True)
        for _ in range(4):
            for side in (one, two):
                try:
                    side.do_handshake()
                    back = side.version()
                except ssl.SSLWantReadError:
                    pass
        assert back == "TLSv1.3"
        assert one.getpeercert()["subjectAltName"][0][1] == host


def test_what_is_missing_is_said(tmp_path, monkeypatch, upstream):
    with Tree.open(tmp_path / "tape.db") as tree:

        def refused(code, settings):
            with pytest.raises(CannotDo) as caught:
                agents.record(
                    tree, [sys.executable, "-c", code], folder=tmp_path, quiet=True, settings=settings
                )
            return caught.value.hint

        assert "record with --proxy" in refused("print(1)", RecordSettings())
        assert "asked nothing through the proxy" in refused("print(1)", RecordSettings(proxy=True))
        ask = f"import urllib.request as web\nweb.urlopen('https://localhost:{upstream.server_address[1]}')"
        ask = "import os\nos.environ.pop('NO_PROXY'), os.environ.pop('no_proxy')\n" + ask
        assert "--proxy-host NAME, of localhost" in refused(ask, RecordSettings(proxy=True))
        distrusts = BEGIN + "import os\nos.environ['SSL_CERT_FILE'] = os.devnull\n" + CLIENTS["urllib"]
        assert "does not take our certificate for api.openai.com" in refused(distrusts, through(upstream))
        for wrong in ("https://api.openai.com", "a b", "x=ftp://y", ""):
            with pytest.raises(BadInput, match="no name of a host"):
                hosts_of([], [wrong])
        monkeypatch.setitem(sys.modules, "cryptography", None)
        with pytest.raises(CannotDo, match="cryptography"):
            SessionAuthority()
        runs = len(agents.runs_of(tree))
        with pytest.raises(CannotDo, match="cryptography"):
            agents.record(
                tree, [sys.executable, "-c", ""], folder=tmp_path, settings=RecordSettings(proxy=True)
            )
        assert len(agents.runs_of(tree)) == runs  # and no run is begun
