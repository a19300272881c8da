"""Who may ask the viewer to fork; packages/refork/tests/serve/test_gate.py asks every route of it."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from refork import MatchJudge
from refork.errors import BadInput
from refork.viewer.live.api import LONGEST, create_viewer_app
from refork.viewer.live.forking import Forking, ForkSetup
from refork.viewer.live.server import serve_viewer
from refork.viewer.live.shelf import Shelf
from support.viewer_tree import policy


@pytest.fixture(scope="module")
def client(told):
    shelf = Shelf([told.file])
    forking = Forking(ForkSetup(policy(), lambda trajectory: None, MatchJudge("right")), shelf.file)
    with TestClient(create_viewer_app(shelf, forking), base_url="http://localhost:8080") as client:
        yield client
    assert forking.jobs() == []


def test_a_fork_is_asked_for_by_the_page_alone_and_within_bounds(client, told):
    wish = {
        "tree": "tree.db",
        "node": told.guess,
        "token": 1,
        "changes": ["remove:1"],
        "draws": 4,
        "score": "x",
    }
    for headers in ({"origin": "http://evil.example"}, {"origin": "http://localhost:9"}, {"host": "evil"}):
        for path in ("/api/fork", "/api/stop"):
            assert client.post(path, json=wish, headers=headers).status_code == 403
    page = {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}
    assert client.post("/api/fork", data=wish, headers=page).status_code == 415
    bad = client.post("/api/fork", json=wish | {"draws": 0}, headers=page)
    assert (bad.status_code, "draws" in bad.json()["error"]["message"]) == (400, True)
    kind = {"content-type": "application/json"}
    assert client.post("/api/fork", content=b" " * (LONGEST + 1), headers=page | kind).status_code == 413


def test_a_name_that_was_allowed_is_answered(told):
    app = create_viewer_app(Shelf([told.file]), names=["trees.example"])
    with TestClient(app, base_url="http://trees.example") as proxied:
        assert proxied.get("/api/trees").status_code == 200
        assert proxied.get("/api/trees", headers={"host": "evil.example"}).status_code == 403


def test_no_site_may_frame_it(client):
    for path in ("/", "/web/page.css", "/api/trees", "/api/none"):
        assert "frame-ancestors 'none'" in client.get(path).headers["content-security-policy"]


def test_other_machines_are_refused(told):
    with pytest.raises(BadInput, match="other machines"):
        serve_viewer(Shelf([told.file]), host="0.0.0.0")
