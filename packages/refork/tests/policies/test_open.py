"""Policies by name, their probe, and the command line's view of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from refork import registry
from refork.cli.policy import app
from refork.errors import BadInput
from refork.policies.base import Policy, Request, Sampling, sample_all
from refork.policies.open import open_policy, parse_spec, recorded_policy, scripted, spell
from refork.policies.probe import probe_policy
from refork.policies.remote import RemotePolicy
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from refork_methods.recovery.maze import walker_distribution
from support.openai_server import CODEC, Script


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("hf:some/dir", ("hf", "some/dir", {})),
        ("hf:Org/Model-1.5B", ("hf", "Org/Model-1.5B", {})),
        ("hf:a+b/c+adapter=d/e+f+device=cpu", ("hf", "a+b/c", {"adapter": "d/e+f", "device": "cpu"})),
        ("openai:http://h:1/v1#org/m", ("openai", "http://h:1/v1#org/m", {})),
        (
            "openai:http://h:1/v1#m+tokenizer=t/u+concurrency=3",
            ("openai", "http://h:1/v1#m", {"tokenizer": "t/u", "concurrency": 3}),
        ),
        ("scripted:coin", ("scripted", "coin", {})),
    ],
)
def test_the_grammar(spec, parts):
    assert parse_spec(spec) == parts


def test_a_package_can_add_names():
    registry.register("policy_names", "mine", lambda rest, progress: f"scripted:{rest}")
    try:
        assert open_policy("mine:coin").card.name == "scripted:coin"
        assert spell("mine:coin") == "scripted:coin"
        for spec in ("other:x", "hf:x", "x", "mine:", ":x"):
            assert spell(spec) == spec
    finally:
        registry.unregister("policy_names", "mine")


OWN = """
from refork.policies.open import open_policy

Policy = open_policy("scripted:coin")


def by_rest(rest: str, *, times: int = 1, cold: float = 0.0, key: "Annotated[str, UNWRITTEN]" = ""):
    assert rest == "greeter" and times == 2 and cold == 0.5, (rest, times, cold)
    return open_policy(f"scripted:{rest}")


class Coin:
    def __new__(cls):
        return open_policy("scripted:coin")


def none():
    return 3
"""


def test_a_policy_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_policies.py").write_text(
        "from typing import Annotated\nfrom refork.policies.kinds import UNWRITTEN\n" + OWN
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for place in ("./own_policies.py", "own_policies"):
        assert open_policy(f"{place}:Policy").card.name == "scripted:coin"
        assert open_policy(f"{place}:Coin").card.name == "scripted:coin"
        assert open_policy(f"{place}:by_rest:greeter+times=2+cold=0.5").card.name == "scripted:greeter"
        assert open_policy(f"{place}:by_rest:greeter", times=2, cold=0.5).card.name == "scripted:greeter"
        for rest, words in [
            ("none", "this is no policy but int"),
            ("Policy:x", "takes nothing more"),
            ("Coin:x", "takes no argument"),
            ("by_rest", "names no policy"),
            ("by_rest:greeter+times=x", "must be a number"),
            ("by_rest:greeter+key=x", "cannot be written into the name"),
            ("by_rest:greeter+colour=x", "cannot be written into the name"),
            ("by_rest:coin", "AssertionError"),
        ]:
            with pytest.raises(BadInput, match=words):
                open_policy(f"{place}:{rest}")


@pytest.mark.parametrize(
    "spec", ["./evil.py:Policy", "evil:Policy", "evil.inner:Policy", "scripted:./evil.py:S"]
)
def test_what_a_record_names_is_not_run(tmp_path, monkeypatch, spec):
    line = f"open({str(tmp_path / 'done')!r}, 'w')\n"
    (tmp_path / "evil").mkdir()
    for file in ("evil.py", "evil/__init__.py", "evil/inner.py"):
        (tmp_path / file).write_text(line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInput):
        recorded_policy(spec)
    assert not (tmp_path / "done").exists()
    assert recorded_policy("scripted:coin").card.name == "scripted:coin"


@pytest.mark.parametrize("spec", ["", "coin", "hf:", "gpt:4", ":x", "HF:dir"])
def test_what_names_no_policy(spec):
    with pytest.raises(BadInput, match="names no policy") as caught:
        open_policy(spec)
    for form in ("hf:DIR", "openai:URL#MODEL", "scripted:NAME"):
        assert form in caught.value.hint


@pytest.mark.parametrize(
    ("spec", "options", "reason"),
    [
        ("openai:http://h/v1", {}, "an address and a model"),
        ("openai:#m", {}, "an address and a model"),
        ("openai:http://h/v1#m+concurrency=many", {}, "must be a number"),
        ("openai:http://h/v1#m+api_key=secret", {}, "cannot be written into the name"),
        ("hf:dir+colour=red", {}, "cannot be written into the name"),
        ("scripted:coin", {"device": "cpu"}, "no option 'device'"),
        ("scripted:dice", {}, "no script 'dice'"),
        ("openai:localhost#m", {}, "no server address"),
    ],
)
def test_bad_names_and_options(spec, options, reason):
    with pytest.raises(BadInput, match=reason):
        open_policy(spec, **options)


def test_opening_a_server():
    policy = open_policy("openai:http://127.0.0.1:9/v1#m+concurrency=2", tokenizer=CODEC)
    assert isinstance(policy, RemotePolicy)
    assert list(policy.encode("ab")) == list(CODEC.encode("ab"))
    policy.close()


_ASKED = {"walker": "exits in out", "refuser-d": "benign request from mail about cars : calm vague one"}


@pytest.mark.parametrize("name", ["coin", "greeter", "lock", "refuser-d", "walker"])
def test_every_script_keeps_its_promises(name):
    policy = open_policy(f"scripted:{name}")
    assert isinstance(policy, Policy)
    assert policy.card.name == f"scripted:{name}"
    assert policy.card == scripted(name).card
    found = probe_policy(policy, _ASKED.get(name, "open lock 1 :"))
    assert all(found.checks.values())
    assert set(found.checks) == {
        "no error",
        "tokens decode to the text",
        "equal noise, equal draws",
        "log-probs are 0 or less",
        "one log-prob for each token",
        "scores agree with draws",
    }


def test_the_walker_takes_every_exit():
    assert walker_distribution("fork ; exits branch 17 branch 4\n") == {"go": 1.0}
    assert walker_distribution("fork ; exits branch 17 branch 4\ngo branch ") == {"1": 0.5, "4": 0.5}
    policy = scripted("walker")
    seen = policy.render([], token_array([]), [{"role": "user", "content": "x ; exits in edge 0 edge 12"}])
    said = sample_all(policy, [Request(seen.tokens, NoiseKey(0, 0, d)) for d in range(60)], Sampling())
    assert {s.text for s in said} == {"go in", "go edge 0", "go edge 12"}
    # Each third is at least 8 of 60 but for one seed in 500.
    assert min(sum(s.text == t for s in said) for t in {s.text for s in said}) >= 8
    assert walker_distribution("nothing to see\n") == {"go": 1.0}
    assert walker_distribution("exits in\nsomething else") == {"": 1.0}


class Broken:
    """A policy that breaks its promises one at a time."""

    def __init__(self, **spoil):
        self.inner, self.spoil, self.calls = scripted("coin"), spoil, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def sample(self, requests, settings):
        self.calls += 1
        for said in self.inner.sample(requests, settings):
            spoil = {k: v for k, v in self.spoil.items() if k != "second_text"}
            if self.calls > 1 and "second_text" in self.spoil:
                spoil["text"] = self.spoil["second_text"]
            yield replace(said, **spoil)


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        ({"text": "!"}, "tokens decode to the text"),
        ({"second_text": "!"}, "equal noise, equal draws"),
        ({"logprobs_t1": np.array([0.5, 0.5], np.float32)}, "log-probs are 0 or less"),
        ({"logprobs_t1": np.full(9, -1.0, np.float32)}, "one log-prob for each token"),
        ({"logprobs_t1": np.array([-9.0], np.float32)}, "scores agree with draws"),
        ({"error": "x"}, "no error"),
    ],
)
def test_a_broken_promise_is_found(spoil, check):
    found = probe_policy(Broken(**spoil), "toss")
    assert not found.checks[check]


# -- the command line -------------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(app, args, catch_exceptions=False)


def test_show():
    shown = run("show", "scripted:coin")
    assert shown.exit_code == 0
    assert "scripted:coin" in shown.stdout
    assert "paired         yes" in shown.stdout
    assert "whitebox       no" in shown.stdout
    card = json.loads(run("show", "scripted:coin", "--json").stdout)
    assert card["capabilities"] == ["logprobs", "paired", "scores", "tokens"]


def test_list():
    rows = json.loads(run("list", "--json").stdout)
    specs = {row["spec"] for row in rows}
    assert {"hf:DIR[+adapter=DIR]", "scripted:coin", "scripted:motive-NAME[@SCENE]"} <= specs
    assert all(row["what"] and not row["lacks"] for row in rows)
    shown = run("list").stdout
    assert all(spec in shown for spec in specs)


def test_probe():
    found = run("probe", "scripted:greeter")
    assert found.exit_code == 0
    assert "WRONG" not in found.stdout
    data = json.loads(run("probe", "scripted:greeter", "--json", "--seed", "3").stdout)
    assert data["policy"]["name"] == "scripted:greeter"
    assert all(data["checks"].values())


def test_probe_says_what_is_wrong(monkeypatch):
    monkeypatch.setattr("refork.policies.open.scripted", lambda name: Broken(text="!"))
    found = run("probe", "scripted:coin")
    assert found.exit_code == 1
    assert "WRONG        tokens decode to the text" in found.stdout


def test_show_and_probe_a_server(remote, monkeypatch):
    policy = remote(Script(dialect=None))
    monkeypatch.setattr("refork.policies.open.open_policy", lambda spec, **options: policy)
    shown = run("show", f"openai:{policy.url}#tiny")
    assert "why_not_tokens it refused a prompt of token ids" in shown.stdout
    assert "tokens         no" in shown.stdout
    assert run("probe", f"openai:{policy.url}#tiny").exit_code == 0
    exact = remote(tokenizer=CODEC)
    monkeypatch.setattr("refork.policies.open.open_policy", lambda spec, **options: exact)
    assert run("probe", "openai:x#tiny").exit_code == 0


def test_a_number_may_follow_a_script():
    pytest.importorskip("minigrid")
    assert scripted("babyai-bot@0.25").card.name == "scripted:babyai-bot@0.25"
    for name in ("babyai-bot@often", "babyai-bot@2", "rule-agent@often", "repairer@often", "specialist@x"):
        with pytest.raises(BadInput):
            scripted(name)
    with pytest.raises(BadInput, match="babyai-bot, coin, greeter"):
        scripted("nobody@1")
