"""The endpoints of a study: what is refused, and that nobody sees another's part."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from refork.errors import CannotDo
from refork_methods.journal import Journal
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.people import Completion, Conduct, Study
from refork_methods.theory.people.codes import new_key
from refork_methods.theory.serve.people import LONGEST, create_people_app

PAIRS = CueExperiment.of([0.9, 0.8], [[1, 0], [0, 1]], [[0, 1], [1, 1]])
JSON = {"content-type": "application/json"}
ONE, TWO = {"authorization": f"Bearer {'a' * 48}"}, {"authorization": f"Bearer {'b' * 48}"}


@pytest.fixture
def study():
    made = Conduct(Study.of(PAIRS, trials=4, completion=Completion("ALL1")), Journal(), new_key(), most=2)
    with TestClient(create_people_app(made), base_url="http://localhost") as client:
        yield client


def answer(order, place, **more):
    body = {
        "index": place,
        "stimulus": order[place],
        "response": 1,
        "rt_ms": 1500.0,
        "by": "key",
        "away_ms": 0,
    }
    return body | more


def test_the_page_and_its_parts(study):
    shown = study.get("/?PROLIFIC_PID=1")
    assert shown.status_code == 200
    assert "script-src 'self'" in shown.headers["content-security-policy"]
    assert shown.headers["cache-control"] == "no-store"
    assert "ALL1" not in shown.text
    assert study.get("/assets/page.js").headers["content-type"].startswith("text/javascript")
    for path in ("/assets/../people.py", "/assets/VENDORED.toml", "/results", "/docs", "/openapi.json"):
        assert study.get(path).status_code == 404
    assert study.get("/health").json() == {"status": "ok"}


def test_a_person_from_begin_to_end(study):
    begun = study.post("/api/begin", json={"params": {"PROLIFIC_PID": "7"}}, headers=ONE).json()
    order = begun["order"]
    assert begun["status"] == "going"
    for index in range(4):
        told = study.post("/api/answer", json=answer(order, index), headers=ONE).json()
        assert told["answered"] == index + 1
        assert "code" not in told
    assert study.post("/api/standing", json={}, headers=ONE).json()["answered"] == 4
    ended = study.post("/api/end", json={"away_ms": 12.5, "bot": ["webdriver"]}, headers=ONE).json()
    assert ended["code"] == "ALL1"
    assert ended["return"] == "https://app.prolific.com/submissions/complete?cc=ALL1"


def test_a_part_is_found_by_its_token_alone(study):
    order = study.post("/api/begin", json={}, headers=ONE).json()["order"]
    for path, body in (
        ("standing", {}),
        ("answer", answer(order, 0)),
        ("end", {"away_ms": 0}),
        ("withdraw", {}),
    ):
        for headers in (TWO, {}, {"authorization": "Bearer "}, {"authorization": ONE["authorization"][7:]}):
            assert study.post(f"/api/{path}", json=body, headers=headers).status_code == 401
    told = study.post("/api/begin", json={}, headers=TWO).json()
    assert set(told) == {"status", "answered", "order"}
    assert told["answered"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"response": 2}, {"response": True}, {"response": "1"}, {"index": -1}, {"rt_ms": -1}, {"rt_ms": None},
        {"by": "mouse"}, {"away_ms": 1e300}, {"extra": 1},
    ],
)  # fmt: skip
def test_answers_that_are_none_are_refused_by_field(study, wrong):
    order = study.post("/api/begin", json={}, headers=ONE).json()["order"]
    refused = study.post("/api/answer", json=answer(order, 0, **wrong), headers=ONE)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == next(iter(wrong))
    assert study.post("/api/standing", json={}, headers=ONE).json()["answered"] == 0


def test_what_comes_out_of_turn_twice_or_too_late_has_a_code(study):
    order = study.post("/api/begin", json={"params": {"participant": "7"}}, headers=ONE).json()["order"]
    again = study.post("/api/begin", json={"params": {"participant": "7"}}, headers=TWO)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "again")
    early = study.post("/api/answer", json=answer(order, 2), headers=ONE)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "order")
    link = study.post("/api/begin", json={"params": {"participant": "{{%X%}}"}}, headers=TWO)
    assert (link.status_code, link.json()["error"]["code"]) == (400, "link")
    study.post("/api/begin", json={}, headers=TWO)
    full = study.post("/api/begin", json={}, headers={"authorization": f"Bearer {'c' * 48}"})
    assert (full.status_code, full.json()["error"]["code"]) == (409, "full")


def test_long_and_broken_bodies(study):
    assert study.post("/api/begin", content=b"x" * (LONGEST + 1), headers=ONE | JSON).status_code == 413
    assert study.post("/api/begin", content=b"{", headers=ONE | JSON).status_code == 400
    many = {"params": {str(n): "x" for n in range(100)}}
    assert study.post("/api/begin", json=many, headers=ONE).status_code == 400


def test_an_address_that_is_taken_is_said(tmp_path):
    import socket

    from refork_methods.theory.serve.people_serve import serve_people

    conduct = Conduct(Study.of(PAIRS, trials=4), Journal(), new_key())
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CannotDo, match="cannot listen"):
        serve_people(conduct, port=taken.getsockname()[1])
