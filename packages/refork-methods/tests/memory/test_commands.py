from __future__ import annotations

import json

from typer.testing import CliRunner

from memory.memory_parts import CATALOGUE, QUERIES, asks, pay_run, write_runs
from refork.chat import ScriptedChat
from refork.errors import UserError
from refork_methods.memory.commands import app
from refork_methods.memory.events import FILE
from refork_methods.memory.roles.team import roles_by


def memory(*arguments, status=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(done.exception, UserError):
        assert done.exception.exit_code == status, done.exception
        return str(done.exception)
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout


def prepared(folder):
    write_runs(folder / "runs.jsonl", [pay_run(f"t{n}", *one) for n, one in enumerate(QUERIES)])
    (folder / "functions.json").write_text(json.dumps(CATALOGUE))
    return folder / "mem", folder / "runs.jsonl", folder / "functions.json"


def test_from_runs_to_a_tool(tmp_path):
    store, runs, functions = prepared(tmp_path)
    assert "4 runs read, 0 skipped: 2 new items" in memory("ingest", store, runs)
    assert "3 of 3  due" in memory("gate", store)
    assert "3 of 4  text" in memory("gate", store, "--build-cost", 7, "--saving", 2)
    assert "pay_send_by_name_amount_note, from 3 tasks" in memory("codify", store, "--catalogue", functions)
    assert memory("codify", store, "--catalogue", functions) == "no plan is due\n"
    assert "pay_send_by_name_amount_note" in memory("gate", store)
    chosen = json.loads(memory("select", store, "--query", asks("Bob May", 3, "x"), "--json"))
    assert chosen["tools"][0]["name"] == "pay_send_by_name_amount_note"
    assert [item["kind"] for item in chosen["items"]] == ["plan", "pitfall"]
    assert "[tool] pay_send" in memory("select", store, "--query", asks("Bob May", 3, "x"))
    assert "unused tool" in memory("audit", store, "--catalogue", functions, status=1)
    assert json.loads(memory("audit", store, "--json", status=1))
    assert "selection: 6 entries, 0 tokens" in memory("show", store)
    assert json.loads(memory("show", store, "--json", "--at", 1))["items"] == []
    for kind in ("package", "skills", "mcp"):
        files = memory("export", store, tmp_path / kind, "--as", kind).split()
        assert files
        assert json.loads(memory("export", store, tmp_path / f"{kind}2", "--as", kind, "--json"))
    assert "no kind of export" in memory("export", store, tmp_path / "x", "--as", "zip", status=2)


def test_a_task_is_read_once(tmp_path):
    store, runs, _ = prepared(tmp_path)
    memory("ingest", store, runs, "--no-observe")
    assert json.loads(memory("gate", store, "--json"))["plans"][0]["tasks"] == 0
    assert "read before" in memory("ingest", store, runs, status=2)
    assert json.loads(memory("ingest", store, runs, "--skip-known", "--json"))["skipped"] == 4


def test_what_is_not_there_or_does_not_fit_is_told(tmp_path):
    store, runs, functions = prepared(tmp_path)
    assert "no such file" in memory("select", store, "--query", "x", status=2)
    assert "no such file" in memory("ingest", store, tmp_path / "none.jsonl", status=2)
    (tmp_path / "empty.jsonl").touch()
    assert "no trajectory" in memory("ingest", store, tmp_path / "empty.jsonl", status=2)
    assert not store.exists()
    memory("ingest", store, runs)
    assert "go together" in memory("gate", store, "--saving", 2, status=2)
    assert "at least once" in memory("gate", store, "--theta", 0, status=2)
    assert "no such catalogue" in memory("codify", store, "--catalogue", "none", status=2)
    assert "nothing fits this query" in memory("select", store, "--query", "zzz")
    functions.write_text("[1]")
    assert "no name" in memory("codify", store, "--catalogue", functions, status=2)
    functions.write_text('{"send": {}}')
    assert "no function of an app" in memory("codify", store, "--catalogue", functions, status=2)
    functions.write_text("x")
    assert "not JSON" in memory("codify", store, "--catalogue", functions, status=2)
    functions.write_text("3")
    assert "no catalogue" in memory("codify", store, "--catalogue", functions, status=2)


def test_eager_code_and_openai_schemas(tmp_path):
    store, runs, functions = prepared(tmp_path)
    rows = [
        {"type": "function", "function": {"name": n.replace(".", "__"), "parameters": p}}
        for n, p in CATALOGUE.items()
    ]
    functions.write_text(json.dumps(rows))
    memory("ingest", store, runs)
    assert json.loads(memory("codify", store, "--catalogue", functions, "--eager", "--json"))[0]["tools"]


def test_secrets_are_named_unless_they_are_to_be_kept(tmp_path):
    store, runs, functions = prepared(tmp_path)
    memory("ingest", store, runs)
    assert "p-1" not in (store / FILE).read_text()
    kept = tmp_path / "kept"
    memory("ingest", kept, runs, "--keep-secrets")
    memory("codify", kept, "--catalogue", functions)
    assert "secret: plan-1" in memory("audit", kept, status=1)
    assert "--allow-secrets" in memory("export", kept, tmp_path / "out", status=2)
    assert memory("export", kept, tmp_path / "out", "--allow-secrets")


def test_a_refusal_is_told(tmp_path):
    store, runs, _ = prepared(tmp_path)
    memory("ingest", store, runs)
    assert "stays text" in memory("codify", store, "--catalogue", "miniapps")


def test_runs_and_plans_on_which_a_model_fails_are_named(tmp_path, monkeypatch):
    store, runs, functions = prepared(tmp_path)
    mute = roles_by(ScriptedChat(lambda _: "no JSON"))
    monkeypatch.setattr("refork_methods.memory.commands._roles", lambda model: mute if model else None)
    told = memory("ingest", store, runs, "--model", "mute", status=1)
    assert "0 runs read" in told
    assert [line.split(":")[:2] for line in told.splitlines()[1:]] == [
        [f"t{n}", " not read"] for n in range(len(QUERIES))
    ]
    failed = json.loads(memory("ingest", store, runs, "--model", "mute", "--json", status=1))["failed"]
    assert [one["task"] for one in failed] == [f"t{n}" for n in range(len(QUERIES))]
    memory("ingest", store, runs)
    write_runs(runs, [pay_run(f"u{n}", *one) for n, one in enumerate(QUERIES)])
    memory("ingest", store, runs)
    monkeypatch.setattr("refork_methods.memory.commands._repairer", lambda _: None)
    told = memory("codify", store, "--catalogue", functions, "--model", "mute", status=1)
    assert "plan-1: stays due: " in told
    assert "from 4 tasks" in memory("codify", store, "--catalogue", functions)


def test_a_torn_line_is_told(tmp_path):
    store, runs, _ = prepared(tmp_path)
    memory("ingest", store, runs)
    with (store / FILE).open("a") as file:
        file.write('{"n"')
    done = CliRunner().invoke(app, ["show", str(store)])
    assert "4 bytes of an unfinished last line" in done.stderr


def test_replay_compares_arms():
    given = ("replay", "--arm", "none,text", "--train", 9, "--test-tasks", 6)
    told = json.loads(memory(*given, "--json"))
    assert set(told) == {"none", "text"}
    assert "scenarios done" in memory(*given)
    assert "no arm" in memory("replay", "--arm", "wild", status=2)
