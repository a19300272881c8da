"""Pages of strangers in real Chromium that try to read a server, write to it and make it work.

For tests and benchmarks. A page comes from a real server under a name of its own. It asks across origins, or
it is *rebound*: the page's server goes, ours takes its very port, and for the browser both are one origin.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx

from refork import MatchJudge, Tree
from refork.chat import ScriptedChat
from refork.serve import serving
from refork.serve.local import running
from refork.serve.settings import ServerSettings
from refork.viewer.live.forking import Forking, ForkSetup
from refork.viewer.live.server import viewer_server
from refork.viewer.live.shelf import Shelf
from refork_worlds.web import browser
from support.viewer_tree import grow, policy

#: A name that a stranger owns, and that leads to this machine.
STRANGER = "evil.example"
FLAGS = (f"--host-resolver-rules=MAP {STRANGER} 127.0.0.1", "--no-proxy-server")
PAGE = b"<!doctype html><meta charset=utf-8><title>a page</title><body>"

#: Tries everything at once, and tells per try: read (something of an answer was seen), opaque, or refused.
#: Silent is a try of which nothing was heard in two minutes: it would prove nothing, so none may be.
SCRIPT = """async ({ base, gets, posts, asks }) => {
  const tries = [];
  const attempt = (kind, path, told) => {
    const late = new Promise((end) => setTimeout(() => end("silent"), 120000));
    tries.push(Promise.race([told, late]).then((said) => [kind, path, said], () => [kind, path, "refused"]));
  };
  const seen = async (answer) => {
    if (answer.type === "opaque") return "opaque";
    await answer.text();
    return answer.ok ? "read" : "refused";
  };
  const part = (tag, path) => new Promise((end) => {
    const one = document.createElement(tag);
    one.onload = () => end("read");
    one.onerror = () => end("refused");
    if (tag === "link") one.rel = "stylesheet";
    one[tag === "link" ? "href" : tag === "object" ? "data" : "src"] = base + path;
    document.body.append(one);
  });
  let frames = 0;
  const frame = (begin) => new Promise((end) => {
    const one = document.createElement("iframe");
    one.name = `frame${frames += 1}`;
    one.onload = () => {
      let text;
      try { text = one.contentDocument.documentElement.outerHTML; } catch { return end("opaque"); }
      if (text.includes("about:blank") || one.contentWindow.location.href === "about:blank") return;
      end(!text || text.includes('"error"') ? "refused" : "read");
    };
    begin(one);
  });
  const form = (path, enctype, body) => frame((one) => {
    document.body.append(one);
    const sent = document.createElement("form");
    Object.assign(sent, { method: "post", action: base + path, enctype, target: one.name });
    const field = document.createElement("input");
    // With text/plain a form writes NAME=VALUE: cut so that both together are JSON.
    field.name = body.slice(0, -1) + ', "x": "';
    field.value = '"}';
    sent.append(field);
    document.body.append(sent);
    sent.submit();
  });
  const xhr = (method, path, type, body) => new Promise((end) => {
    const one = new XMLHttpRequest();
    one.open(method, base + path);
    if (type) one.setRequestHeader("content-type", type);
    one.onload = () => end(one.status < 400 ? "read" : "refused");
    one.onerror = () => end("refused");
    one.send(body);
  });
  for (const path of gets) {
    attempt("fetch", path, fetch(base + path).then(seen));
    attempt("fetch no-cors", path, fetch(base + path, { mode: "no-cors" }).then(seen));
    attempt("fetch with cookies", path, fetch(base + path, { credentials: "include" }).then(seen));
    attempt("xhr", path, xhr("GET", path));
    for (const tag of ["img", "script", "link", "video", "audio"]) attempt(tag, path, part(tag, path));
    attempt("iframe", path, frame((one) => { one.src = base + path; document.body.append(one); }));
    attempt("EventSource", path, new Promise((end) => {
      const one = new EventSource(base + path);
      one.onopen = () => end("read");
      one.onerror = () => { one.close(); end("refused"); };
    }));
    attempt("WebSocket", path, new Promise((end) => {
      const one = new WebSocket(base.replace("http", "ws") + path);
      one.onopen = () => end("read");
      one.onerror = () => end("refused");
    }));
  }
  for (const [path, body] of posts) {
    const plain = "text/plain;charset=UTF-8";
    const post = (more) => fetch(base + path, { method: "POST", ...more }).then(seen);
    const send = (kind, more) => attempt(kind, path, post(more));
    const bytes = new TextEncoder().encode(body);
    send("fetch text/plain", { body });
    send("fetch no-cors text/plain", { body, mode: "no-cors" });
    send("fetch without a type", { body: new Blob([body]) });
    send("fetch no-cors without a type", { body: bytes, mode: "no-cors" });
    send("fetch form", { body: new URLSearchParams({ x: body }) });
    for (const type of asks) {
      const headers = { "content-type": type };
      send(`fetch ${type}`, { headers, body });
      send(`fetch no-cors ${type}`, { headers, body, mode: "no-cors" });
      attempt(`xhr ${type}`, path, xhr("POST", path, type, body));
    }
    send("fetch PUT", { body, method: "PUT" });
    send("fetch DELETE", { method: "DELETE" });
    attempt("xhr text/plain", path, xhr("POST", path, plain, body));
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
      attempt(`form ${type}`, path, form(path, type, body));
    navigator.sendBeacon(base + path, body);
    try { navigator.sendBeacon(base + path, new Blob([body], { type: "application/json" })); } catch {}
  }
  return Promise.all(tries);
}"""
#: Types that a page may only send after asking, and ways to write them that parsers might take for simple.
ASKS = ("application/json", "text/plain; application/json", "application/json;charset=utf-8")


@contextmanager
def stranger():
    """A stranger's server of :data:`PAGE` on any path; gives its port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *said):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def attacked(serve, gets, posts, name="127.0.0.1"):
    """Attack a server from another origin, then rebound. ``serve(port)`` is a context of its address.

    ``gets``: paths; ``posts``: paths with bodies; ``name``: what the page calls this machine. Gives a list
    of (place, kind, path, outcome).
    """

    def tried(page, base):
        given = {"base": base, "gets": list(gets), "posts": [list(one) for one in posts], "asks": list(ASKS)}
        return page.evaluate(SCRIPT, given)

    def job(chromium):
        context = chromium.new_context()
        try:
            context.set_default_timeout(60_000)
            page = context.new_page()
            with stranger() as port, serve(0) as address:
                page.goto(f"http://{STRANGER}:{port}/")
                across = tried(page, f"http://{name}:{urlsplit(address).port}")
            with stranger() as port:
                page.goto(f"http://{STRANGER}:{port}/")
            with serve(port) as address:
                assert urlsplit(address).port == port
                rebound = tried(page, f"http://{STRANGER}:{port}")
        finally:
            context.close()
        return [("across", *one) for one in across] + [("rebound", *one) for one in rebound]

    tries = browser.in_browser(job, flags=FLAGS)
    assert not [one for one in tries if one[3] == "silent"]
    return tries


#: What the servers under attack know, and no page may learn.
SECRET = "a secret of this machine"
_TALK = [{"role": "user", "content": "what is it?"}]


def _asked(**more):
    return json.dumps({"model": "m"} | more)


@dataclass
class Attacked:
    """What came of the attacks on one server: every try, and what it did: answers given, nodes written.

    ``statuses``: what the server counted, where it counts.
    """

    tries: list
    answered: int
    written: int
    statuses: set = field(default_factory=set)

    @property
    def read(self):
        """Tries in which a page saw something of an answer."""
        return [one for one in self.tries if one[3] == "read"]


def attack_server(folder, name="127.0.0.1"):
    """``refork serve`` without a key, with a recorded tree."""
    asked, statuses, record = [], set(), folder / "served.db"

    def answer(messages):
        asked.append(messages)
        return SECRET

    @contextmanager
    def serve(port):
        settings = ServerSettings(port=port, record=record, record_strict=True)
        with serving({"m": ScriptedChat(answer, "m")}, settings) as address:
            yield address
            told = httpx.get(f"{address.removesuffix('/v1')}/metrics").text
            statuses.update(re.findall(r'^refork_requests_total\{.*status="(\d+)"', told, re.MULTILINE))

    posts = (
        ("/v1/chat/completions", _asked(messages=_TALK)),
        ("/v1/completions", _asked(prompt="what is it?")),
        ("/v1/responses", _asked(input="what is it?")),
    )
    gets = ("/v1/models", "/health", "/metrics", "/openapi.json")
    tries = attacked(serve, gets, posts, name)
    with Tree.open(record) as tree:
        return Attacked(tries, len(asked), sum(1 for _ in tree.walk()), statuses)


def attack_viewer(folder, name="127.0.0.1"):
    """``refork view`` that forks."""
    tree = grow(folder / "tree.db")

    def nodes():
        with Tree.open(folder / "tree.db") as opened:
            return sum(1 for _ in opened.walk())

    shelf, begun = Shelf([folder]), []
    forking = Forking(ForkSetup(policy(), lambda trajectory: None, MatchJudge("right"), "script"), shelf.file)
    before = nodes()

    @contextmanager
    def serve(port):
        with running(viewer_server(shelf, forking), "127.0.0.1", port) as address:
            yield address
        begun.extend(forking.jobs())

    wish = {
        "tree": "tree.db",
        "node": tree.guess,
        "token": 1,
        "changes": ["remove:1"],
        "draws": 4,
        "score": "success",
    }
    posts = (("/api/fork", json.dumps(wish)), ("/api/stop", '{"job": "1"}'))
    gets = ("/", "/api/trees", "/api/tree?tree=tree.db", f"/api/nodes?tree=tree.db&ids={tree.guess}")
    tries = attacked(serve, gets, posts, name)
    forking.close()
    return Attacked(tries, len(begun), nodes() - before)


ATTACKS = {"serve": attack_server, "view": attack_viewer}
