from __future__ import annotations

import json

import pytest

from memory.memory_parts import CATALOGUE, QUERIES, Everybody, asks, pay_run
from refork.errors import CannotDo
from refork.sandbox import Sandbox
from refork_methods.memory.events import FILE
from refork_methods.memory.export import export_mcp, export_package, export_skills, record
from refork_methods.memory.memory import ExperienceMemory, codify_due, ingest
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.roles.lesson import Lesson
from refork_methods.memory.runtime import filled, from_environment, variable
from refork_methods.memory.secrets import hidden, in_source, in_text, names_in, secret_key
from refork_methods.memory.trajectory import RunStep, RunTrajectory
from refork_methods.memory.usage import audit

RUNS = [pay_run(f"t{n}", *one) for n, one in enumerate(QUERIES)]


def learned(folder=None, *, hide=True):
    memory = ExperienceMemory(folder, hide_secrets=hide)
    ingest(memory, RUNS)
    codify_due(memory, Everybody())
    return memory


def secrets_flagged(memory):
    return [one.name for one in audit(memory.state, catalogue=CATALOGUE) if one.kind == "secret"]


def test_a_password_of_the_prompt_is_nowhere_in_the_memory(tmp_path):
    memory = learned(tmp_path / "mem")
    assert "p-1" not in (tmp_path / "mem" / FILE).read_text()
    (tool,) = memory.state.live_tools()
    assert "apis.pay.login(password='secret:pay.password')" in tool.source
    assert names_in(tool) == ("pay.password",)
    assert "the secret pay.password" in memory.state.items["plan-1"].body
    assert secrets_flagged(memory) == []


def test_unless_it_is_to_be_kept_and_then_it_is_flagged_and_not_exported(tmp_path):
    memory = learned(hide=False)
    (tool,) = memory.state.live_tools()
    assert "'p-1'" in tool.source
    assert {"plan-1", tool.name} <= set(secrets_flagged(memory))
    registry = ToolRegistry(memory.state.live_tools())
    for name, write in (("p", export_package), ("s", export_skills), ("m", export_mcp)):
        with pytest.raises(CannotDo, match="looks like a secret") as refused:
            write(registry, tmp_path / name)
        assert "p-1" not in str(refused.value)
        assert not (tmp_path / name).exists()
        assert write(registry, tmp_path / name, allow_secrets=True)
    with pytest.raises(CannotDo, match="plan-1"):
        export_skills(ToolRegistry(), tmp_path / "x", items=memory.state.texts())


def test_a_source_that_nests_too_deeply_has_no_literals():
    assert list(in_source("-" * 100_000 + "1")) == []


class Shop:
    def __init__(self):
        self.calls = []

    def __call__(self, name, arguments):
        self.calls.append((name, arguments))
        if name == "pay.login":
            return {"token": "T-of-" + arguments["password"]}
        return {"items": [{"user_id": 5, "name": "Bob May"}] if arguments.get("page") == 0 else []}


def test_the_value_is_put_in_at_the_call_and_outside_the_sandbox(monkeypatch):
    (tool,) = learned().state.live_tools()
    registry, given = ToolRegistry((tool,)), {"name": "Bob May", "amount": 3, "note": "tea"}
    with Sandbox() as sandbox:
        shop = Shop()
        found = invoke(registry, sandbox, tool.name, given, shop, secrets={"pay.password": "pw"}.get)
        assert found.ok
        assert shop.calls[0] == ("pay.login", {"password": "pw"})
        missing = invoke(registry, sandbox, tool.name, given, Shop())
        assert missing.kind == "error"
        assert "SECRET_PAY_PASSWORD" in missing.error
        monkeypatch.setenv("SECRET_PAY_PASSWORD", "from outside")
        shop = Shop()
        assert invoke(registry, sandbox, tool.name, given, shop).ok
        assert shop.calls[0][1] == {"password": "from outside"}
        kept = record(registry, sandbox, tool.name, given, Shop())
    assert kept.calls[0][1] == {"password": "secret:pay.password"}
    assert from_environment("pay.other") is None
    assert variable("pay.password") == "SECRET_PAY_PASSWORD"


def test_a_secret_goes_to_its_own_argument_only():
    def known(name):
        return "value"

    place = "secret:pay.password"
    assert filled("pay.login", {"password": place}, known) == {"password": "value"}
    assert filled("pay.login", {"password": place + "_2"}, known) == {"password": "value"}
    for function, key in (("mail.login", "password"), ("pay.send", "note"), ("mail.send", "body")):
        assert filled(function, {key: place}, known) == {key: place}
    assert filled("pay.login", {"password": place}, None) == {"password": place}
    with pytest.raises(LookupError, match="SECRET_PAY_PASSWORD"):
        filled("pay.login", {"password": place}, lambda name: None)


def test_what_was_returned_is_still_traced_and_not_told():
    told = hidden(RUNS[0])
    assert told.run.steps[1].arguments["token"] == "Tt0"
    assert told.run.steps[0].result == {"token": "Tt0"}
    assert told.names == {"p-1": "secret:pay.password", "Tt0": "[token]"}
    assert told.text("p-1 and Tt0, not p-12") == "secret:pay.password and [token], not p-12"
    assert hidden(told.run).run == told.run


def test_a_secret_is_found_by_name_by_form_and_by_what_the_prompt_says():
    def run(*steps, context=""):
        return RunTrajectory("t", "Do it with hunter22", tuple(steps), context=context)

    wrong = RunStep("a", "", "x.login", {"passcode": 991199}, failed=True, observation="bad 991199")
    right = RunStep("b", "I say hunter22", "x.login", {"passcode": "hunter22"}, {"echo": "hunter22"})
    found = hidden(run(wrong, right))
    assert found.run.query == "Do it with secret:x.passcode"
    assert found.run.steps[0].arguments == {"passcode": "secret:x.passcode_2"}
    assert found.run.steps[0].observation == "bad secret:x.passcode_2"
    assert found.run.steps[1].arguments == {"passcode": "secret:x.passcode"}
    assert found.run.steps[1].result == {"echo": "secret:x.passcode"}
    by_form = hidden(run(RunStep("a", "", "x.go", {"q": "ghp_" + "a1" * 12})))
    assert by_form.run.steps[0].arguments == {"q": "secret:x.q"}
    by_prompt = hidden(
        run(RunStep("a", "", "x.go", {"q": "zeta-9", "n": "zeta"}), context="The password is zeta-9.")
    )
    assert by_prompt.run.steps[0].arguments == {"q": "secret:x.q", "n": "zeta"}
    nested = hidden(run(RunStep("a", "", "x.go", {"auth": {"apiKey": "k-77777"}, "all": [{"pwd": "w-1"}]})))
    assert nested.run.steps[0].arguments == {
        "auth": {"apiKey": "secret:x.apiKey"},
        "all": [{"pwd": "secret:x.pwd"}],
    }
    plain = run(RunStep("a", "", "x.go", {"amount": 20, "max_tokens": 5, "token": None, "flag": True}))
    assert hidden(plain).run == plain


def test_a_model_that_writes_a_secret_down_is_corrected():
    class Tells:
        name = "tells"

        def reflect(self, run, given):
            from refork_methods.memory.roles.lesson import Reflection

            return Reflection((Lesson("fact", "Log in with p-1, then use Tt0."),))

    from refork_methods.memory.roles.team import Roles

    memory = ExperienceMemory(roles=Roles(reflector=Tells()))
    (fact,) = memory.reflect(RUNS[0])
    assert fact.body == "Log in with secret:pay.password, then use [token]."


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The password is p-1.", 1),
        ("password: hunter2", 1),
        ("call pay.login(password 'hunter')", 1),
        ("my api key sk-aaaaaaaaaaaaaaaaaaaa", 2),
        ("password for pay is p-9020", 1),
        ("token = abc-123", 1),
        ("The password is required, the token expires after 8 calls.", 0),
        ("call pay.login(password the secret pay.password) or secret:pay.password", 0),
        ("Pin note 2026-05-05", 0),
        (asks(), 0),
    ],
)
def test_texts(text, count):
    found = list(in_text(text))
    assert len(found) == count
    assert not any("hunter" in words or "p-1" in words for words in found)


def test_a_pitfall_tells_no_values_of_its_run():
    def run(task, who):
        wrong = RunStep(
            "a",
            "",
            "pay.send",
            {"user_id": who},
            failed=True,
            observation=f"error: user_id: '{who}' is no integer",
        )
        return RunTrajectory(
            task, "Pay them", (wrong, RunStep("b", "", "pay.send", {"user_id": 4}, {"id": 1}))
        )

    memory = ExperienceMemory()
    (pitfall,) = memory.reflect(run("t", "Nils Lund"))
    assert "user_id: '{user_id}' is no integer" in pitfall.body
    assert memory.reflect(run("u", "Gina Marsh")) == ()


def test_names_and_sources():
    assert all(map(secret_key, ("password", "apiKey", "api_key", "access_token", "user_password_2", "PIN")))
    assert not any(map(secret_key, ("max_tokens", "spin", "passenger", "note", "token_type")))
    assert list(in_source("def f(apis):\n    apis.a.b(password='x')")) == [
        "the argument 'password' is a constant"
    ]
    assert list(in_source("token = 'abc'\nd = {'pwd': 'x'}"))
    assert not list(in_source("def f(apis, *, password):\n    apis.a.b(password=password, token=None)"))
    assert not list(in_source("apis.a.b(password='secret:a.password')"))
    assert not list(in_source("not python ("))


def test_a_recording_with_a_secret_is_not_exported(tmp_path):
    from refork_methods.memory.export import Recording

    registry = ToolRegistry(learned().state.live_tools())
    login = ("pay.login", {"password": "pw"}, {"token": "T-1"})
    later = ("pay.list_people", {"token": "T-1", "page": 0}, {"items": []})
    name = registry.names[0]
    with pytest.raises(CannotDo, match=r"a recorded call of pay\.login"):
        export_package(registry, tmp_path / "a", recordings=[Recording(name, {}, (login, later), None)])
    fine = Recording(name, {}, (("pay.login", {"password": "secret:pay.password"}, login[2]), later), None)
    files = export_package(registry, tmp_path / "b", recordings=[fine])
    assert "SECRET_PAY_PASSWORD" in (tmp_path / "b" / "README.md").read_text()
    assert json.loads((tmp_path / "b" / "tests" / "recordings.json").read_text())
    assert files
