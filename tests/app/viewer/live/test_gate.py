"""Who may ask: names of this machine only, no other page, and forks only with the page's token."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from ramify import MatchJudge
from ramify.app.viewer.live.api import LONGEST, create_viewer_app
from ramify.app.viewer.live.forking import Actor, Forking
from ramify.app.viewer.live.server import serve_viewer
from ramify.app.viewer.live.shelf import Shelf
from ramify.core.errors import BadInput
from support.viewer_tree import policy


@pytest.fixture(scope="module")
def client(told):
    shelf = Shelf([told.file])
    forking = Forking(Actor(policy(), lambda walk: None, MatchJudge("right")), shelf.file)
    with TestClient(create_viewer_app(shelf, forking), base_url="http://localhost:8080") as client:
        yield client


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080"])
def test_names_of_this_machine(client, host):
    assert client.get("/api/trees", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "", "[::1", "10.0.0.1", "0"],
)
def test_forged_names(client, host):
    for path in ("/", "/web/main.js", "/api/trees"):
        got = client.get(path, headers={"host": host})
        assert got.status_code == 403
        assert got.json()["error"]["code"] == "not_from_here"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_pages(client, headers):
    assert client.get("/api/trees", headers=headers).status_code == 403


def test_the_pages_own_requests(client):
    headers = {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}
    assert client.get("/api/trees", headers=headers).status_code == 200


def test_a_fork_needs_the_pages_token(client, told):
    wish = {
        "tree": "tree.db",
        "node": told.guess,
        "token": 1,
        "changes": ["remove:1"],
        "draws": 4,
        "score": "x",
    }
    for headers in (
        {},
        {"x-ramify-token": "guess"},
        {"x-ramify-token": ""},
        {"x-ramify-token": "é".encode()},
    ):
        for path in ("/api/fork", "/api/stop"):
            assert client.post(path, json=wish, headers=headers).status_code == 403
    start = json.loads(re.search(r'id="start">(.*?)</script>', client.get("/").text)[1])
    assert start["forking"]["kinds"][0] == "remove"
    bad = client.post("/api/fork", json=wish | {"draws": 0}, headers={"x-ramify-token": start["token"]})
    assert (bad.status_code, "draws" in bad.json()["error"]["message"]) == (400, True)
    long = client.post("/api/fork", content=b" " * (LONGEST + 1), headers={"x-ramify-token": start["token"]})
    assert long.status_code == 413


def test_other_methods_change_nothing(client):
    assert client.put("/api/trees").status_code == 403
    assert client.options("/api/fork", headers={"origin": "http://evil.example"}).status_code == 403


def test_every_answer_forbids_what_the_page_does_not_need(client):
    for path in ("/", "/web/page.css", "/api/trees", "/api/none", "/api/tree?tree=none"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_other_machines_are_refused(told):
    with pytest.raises(BadInput, match="other machines"):
        serve_viewer(Shelf([told.file]), host="0.0.0.0")
