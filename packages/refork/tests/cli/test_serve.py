"""``refork serve`` up to the socket: what is opened, under which names, and what is refused."""

import pytest
import typer
from typer.testing import CliRunner

from refork.chat import PolicyChat
from refork.cli.serve import serve_command
from refork.errors import BadInput, CannotDo
from refork_methods.route.decision import RoutedChat

POOL = """
[[worker]]
name = "zero"
policy = "scripted:specialist@0"
[[worker]]
name = "one"
policy = "scripted:specialist@1"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Calls the verb; gives models, settings and what it told. Its errors come through."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REFORK_SERVER_KEY", raising=False)
    (tmp_path / "pool.toml").write_text(POOL)
    found = {}

    def serve(models, settings, ready):
        found.update(models=models, settings=settings)
        ready("http://127.0.0.1:8000/v1")

    monkeypatch.setattr("refork.serve.serve", serve)
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("serve")(serve_command)

    def call(*words):
        result = CliRunner().invoke(app, ["serve", *words])
        if result.exception is not None:
            raise result.exception
        return found["models"], found["settings"], result.stderr

    return call


def test_models_under_their_own_names_and_given_ones(run):
    models, settings, told = run(
        "--model", "scripted:coin", "--model", "hello=scripted:greeter", "--pool", "team=pool.toml",
        "--worker", "one", "--lanes", "3", "--set", "timeout_s=60", "--record", "a.db",
    )  # fmt: skip
    assert set(models) == {"scripted:coin", "hello", "team"}
    assert isinstance(models["hello"], PolicyChat)
    assert isinstance(models["team"], RoutedChat)
    assert (settings.lanes, settings.timeout_s, settings.record.name) == (3, 60, "a.db")
    for line in ("this machine only; no key needed", "always one", "recorded in a.db", "/metrics"):
        assert line in told


def test_keys_come_from_file_and_environment_and_open_other_addresses(run, tmp_path, monkeypatch):
    (tmp_path / "keys").write_text("first\n")
    (tmp_path / "keys").chmod(0o600)
    monkeypatch.setenv("REFORK_SERVER_KEY", "second")
    _, settings, told = run("--model", "scripted:coin", "--key-file", "keys", "--host", "0.0.0.0")
    assert settings.keys == {"first", "second"}
    assert "2 keys accepted" in told
    assert "other machines" in told
    assert "first" not in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to serve"),
        (["--model", "scripted:coin", "--host", "0.0.0.0"], "no key"),
        (["--model", "a=scripted:coin", "--model", "a=scripted:greeter"], "two models"),
        (["--model", "scripted:nobody"], "no script"),
        (["--pool", "pool.toml"], "who picks"),
        (["--pool", "pool.toml", "--worker", "one", "--head", "x"], "who picks"),
        (["--model", "scripted:coin", "--worker", "one"], "no pool"),
        (["--model", "scripted:coin", "--backbone", "b"], "no pool"),
        (["--model", "scripted:coin", "--draft-cost", "x.json"], "no drafter"),
        (["--model", "scripted:coin", "--model", "scripted:greeter", "--drafter", "d"], "one model"),
        (["--model", "scripted:coin", "--set", "host=b"], "sets nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(run, words, says):
    with pytest.raises(BadInput, match=says):
        run(*words)


def test_a_drafter_needs_a_model_that_runs_here(run):
    with pytest.raises(CannotDo, match="drafter"):
        run("--model", "scripted:coin", "--drafter", "d")
