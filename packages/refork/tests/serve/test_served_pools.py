"""Pools behind one name on a real socket, asked by OpenAI's client."""

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest

from refork.chat import ScriptedChat
from refork.errors import CannotDo, DiskFull
from refork.serve import serving
from refork.serve.settings import ServerSettings
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.conduct.conductor import Conductor
from refork_methods.route.decision import DecisionLog, RoutedChat, head_chooser
from refork_methods.route.pool import Worker, WorkerPool
from refork_methods.route.table import OutcomeTable
from refork_methods.route.training import fit_head
from support.models import tiny_policy

TEXTS = [f"{kind} {number}" for number in range(8) for kind in ("sum", "poem")]


def team():
    return WorkerPool(
        tuple(Worker(n, chat=ScriptedChat(lambda m, n=n: f"I am {n}", n)) for n in ("sums", "poems"))
    )


def client(address):
    return openai.OpenAI(api_key="none", base_url=address, max_retries=0)


def ask(asked, text, **more):
    talk = [{"role": "user", "content": text}]
    return asked.chat.completions.create(model="refork", messages=talk, **more)


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """A head fitted on a tiny model's states, its pool behind one name."""
    folder = tmp_path_factory.mktemp("head")
    reward = np.array([[[1.0], [0.0]] if "sum" in text else [[0.0], [1.0]] for text in TEXTS])
    table = OutcomeTable.from_arrays(reward, ("sums", "poems"), TEXTS, texts=TEXTS)
    policy = tiny_policy()
    fit_head(table, folder, backbone=RouterBackbone(policy))
    from refork_methods.route.head import load_head

    pool = team()
    return RoutedChat(pool, head_chooser(load_head(folder)[0], RouterBackbone(policy), pool), name="refork")


def test_a_fitted_head_routes_real_requests_and_says_who_answered(routed):
    expected = {text: routed.decide([{"role": "user", "content": text}]) for text in TEXTS}
    assert {made.chosen for made in expected.values()} == {"sums", "poems"}
    with serving({"refork": routed}, ServerSettings(port=0, lanes=4)) as address, client(address) as asked:
        with ThreadPoolExecutor(8) as many:
            answers = list(many.map(lambda text: ask(asked, text), TEXTS * 3))
        for text, answer in zip(TEXTS * 3, answers, strict=True):
            (choice,) = answer.choices
            made = expected[text]
            assert choice.message.content == f"I am {made.chosen}"
            assert choice.refork["worker"] == made.chosen
            assert choice.refork["reason"] == made.reason
            assert choice.refork["probability"] == pytest.approx(max(made.probabilities))
        *_, last = ask(asked, TEXTS[0], stream=True)
        assert last.choices[0].refork["worker"] == expected[TEXTS[0]].chosen
    assert len(routed.log) == 3 * len(TEXTS) + 1
    with pytest.raises(httpx.ConnectError):  # nothing listens any more
        httpx.get(address.replace("/v1", "/health"))


def test_a_conductor_is_served_with_its_workflow_beside_the_message():
    writer = ScriptedChat(lambda m: "[sums,poems][count,rhyme][[],[1]]", "writer")
    with serving({"refork": Conductor(writer, team())}) as address, client(address) as asked:
        (choice,) = ask(asked, "both").choices
    assert choice.message.content == "I am poems"
    assert choice.refork["workflow"]["workflow"]["model_id"] == ["sums", "poems"]
    assert "workflow" not in choice.message.model_extra


def test_an_address_in_use_is_said():
    with (
        serving({"x": ScriptedChat(["x"])}) as address,
        pytest.raises(CannotDo, match="cannot listen"),
        serving({"x": ScriptedChat(["x"])}, ServerSettings(port=httpx.URL(address).port)),
    ):
        pass


def test_strange_keys_nulls_and_other_paths_do_not_break_it():
    with serving({"refork": ScriptedChat(lambda m: "hi")}) as address, client(address) as asked:
        body = {"seed": None, "tools": None, "stream_options": None, "a\nb": 1, "ключ": 2, "top_p": 1}
        raw = asked.chat.completions.with_raw_response.create(
            model="refork", messages=[{"role": "user", "content": "x"}], extra_body=body
        )
        assert raw.headers["refork-ignored"] == "..., top_p"
        assert asked.models.retrieve("refork").id == "refork"
        for path in ("models/nobody", "nowhere"):
            with pytest.raises(openai.NotFoundError):
                asked.get(f"/{path}", cast_to=object)


@pytest.mark.parametrize(("error", "status"), [(DiskFull("no room"), 500), (RuntimeError("a bug"), 500)])
def test_what_is_not_the_client_s_doing_is_not_said_to_be(error, status):
    from starlette.testclient import TestClient

    from refork.serve import create_app

    def broken(messages):
        raise error

    with TestClient(
        create_app({"m": ScriptedChat(broken)}), base_url="http://localhost", raise_server_exceptions=False
    ) as test:
        talk = [{"role": "user", "content": "x"}]
        answer = test.post("/v1/chat/completions", json={"model": "m", "messages": talk})
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, "server_error")
    assert "a bug" not in answer.text


def test_the_log_of_a_server_does_not_grow_in_memory(tmp_path):
    pool = team()
    for log in (DecisionLog(), DecisionLog(tmp_path / "log.jsonl")):
        chat = RoutedChat(pool, lambda m: np.array([0.6, 0.4]), log=log)
        with ThreadPoolExecutor(4) as many:
            list(many.map(chat.reply, [[{"role": "user", "content": "x"}]] * 20))
        assert len(log) == len(list(log)) == 20
    assert len(log._journal._entries) == 0
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 20


def test_ctrl_c_ends_the_command_after_the_running_answers(tmp_path):
    (tmp_path / "pool.toml").write_text(
        "".join(f'[[worker]]\nname = "w{i}"\npolicy = "scripted:specialist@{i}"\n' for i in range(2))
        + '[serve]\nlog = "calls.jsonl"\n'
    )
    log = tmp_path / "calls.jsonl"
    call = "import sys; from refork.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "serve", "--pool", "pool.toml", "--worker", "w1", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        address = server.stderr.readline().split()[2]  # serving at ADDRESS (...)
        with client(address) as asked:
            assert ask(asked, "hello").choices[0].refork["worker"] == "w1"
        server.send_signal(signal.SIGINT)
        assert "Shutting down" in server.stderr.read()
    assert server.returncode == 0
    assert json.loads(log.read_text())["body"]["decision"]["chosen"] == "w1"
