"""The README's lines for one's own model and log, word for word, on a log that nobody prepared."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import urllib.request
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents import provider as fake
from refork.tree.tree import Tree
from refork.viewer.live import server
from support.command import refork
from support.openai_server import CODEC
from support.repository import ROOT

README = ROOT / "README.md"
LOG = [
    {
        "messages": [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": "What is 6 times 7?"},
            {"role": "assistant", "content": "6 times 7: it is 42."},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "Name a colour."},
            {"role": "assistant", "content": "Blue; or was it green?"},
            {"role": "user", "content": "Just one."},
            {"role": "assistant", "content": "Then it is blue, no more."},
        ]
    },
]


#: Asks six times. What it says at the end holds all answers.
AGENT = """
import http.client, json, os
from urllib.parse import urlsplit
base, talk = urlsplit(os.environ["OPENAI_BASE_URL"]), []
for turn in range(6):
    talk.append({"role": "user", "content": "part %d" % turn})
    link = http.client.HTTPConnection(base.netloc)
    asked = json.dumps({"model": "m", "messages": talk})
    link.request("POST", base.path + "/chat/completions", asked, {"content-type": "application/json"})
    talk.append(json.load(link.getresponse())["choices"][0]["message"])
print([one["content"] for one in talk if one["role"] == "assistant"])
"""


def lines(section):
    block = re.search(rf"## {section}\n+```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block[1].splitlines()]


def test_every_line_for_ones_own_agent_runs(tmp_path, monkeypatch):
    """One after the other, on a program whose fourth answer lost its run."""
    (tmp_path / "my_agent.py").write_text(AGENT)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # its python
    said = {}
    with fake.serving([("fine", None)] * 3 + [("I could not do it", None)]) as (_, address):
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        for words in lines("On your own agent"):
            said[words[2]] = refork(*words[1:], cwd=tmp_path)
    assert list(said) == ["record", "show", "why", "fork"]
    assert "6 exchanges" in said["record"].stderr
    assert "I could not do it" in said["show"].stdout
    assert "the answer at step 3 lost the run" in " ".join(said["why"].stdout.split())
    assert "raises success from 0" in " ".join(said["fork"].stdout.split())
    assert len([*tmp_path.glob("case-*/case.html")]) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A chat log as any program writes one, and a model's folder."""
    made = tmp_path_factory.mktemp("own")
    (made / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LOG))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=CODEC.vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=1024, initializer_range=0.2, bos_token_id=None,
        eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():  # turns end after a few tokens, or the test would take minutes
        model.model.embed_tokens.weight[:, 0] = 4.0
        model.lm_head.weight[1, 0] = 1.2
    model.save_pretrained(made / "my-model")
    CODEC.tokenizer.save_pretrained(made / "my-model")
    return made


def test_every_line_runs(folder, monkeypatch):
    """One after the other, as a reader types them; only the ids of nodes are the reader's own."""
    monkeypatch.delenv("COLUMNS", raising=False)
    typed = lines("On your own model and log")
    assert [words[:2] for words in typed] == [
        ["refork", "tree"], ["refork", "fork"], ["refork", "sweep"], ["refork", "view"],
    ]  # fmt: skip
    pages = []

    def served(shelf, forking=None, **_):
        with server.viewing(shelf, forking) as address, urllib.request.urlopen(address) as answer:
            pages.append(answer.read().decode())

    monkeypatch.setattr(server, "serve_viewer", served)
    said = {}
    for words in typed:
        if "--node" in words:
            with Tree.open(folder / "mine.db", "r") as tree:
                turns = [node for node in tree.walk() if node.kind == "action"]
                words[words.index("--node") + 1] = turns[0].id[:8]
        said[words[1]] = refork(*words[1:], cwd=folder).stdout
    assert "6 new nodes" in said["tree"]
    assert "64 pairs of draws" in said["fork"]
    assert "nothing was graded" in said["fork"]
    assert "length in tokens" in said["fork"]
    assert "success" in said["sweep"]
    assert "<html" in pages[0]
    with Tree.open(folder / "mine.db", "r") as tree, contextlib.suppress(StopIteration):
        swept = [f for f in tree.forks() if "exclude_first" in f.extra]
        assert swept, "the sweep left the trace and drew"
        graded = tree.score_map("success", [d.leaf for f in swept for d in tree.draws(f.id)])
        assert len(graded) == sum(d.end != "error" for f in swept for d in tree.draws(f.id))


def test_a_sweep_that_nobody_grades_draws_nothing_and_names_three_ways(folder):
    refork("tree", "import", "bare.db", "chat.jsonl", "--policy", "hf:./my-model", cwd=folder)
    with Tree.open(folder / "bare.db", "r") as tree:
        node = next(n for n in tree.walk() if n.kind == "action").id[:8]
    sweep = ("sweep", "--tree", "bare.db", "--node", node, "--policy", "hf:./my-model")
    refused = refork(*sweep, cwd=folder, status=2)
    assert "token" not in refused.stdout
    for way in ("--world", "--success-regex", "--judge"):
        assert way in refused.stderr
    with Tree.open(folder / "bare.db", "r") as tree:
        assert list(tree.forks()) == []


def test_a_fork_of_a_log_is_graded_where_somebody_says_how(folder):
    refork("tree", "import", "graded.db", "chat.jsonl", "--policy", "hf:./my-model", cwd=folder)
    with Tree.open(folder / "graded.db", "r") as tree:
        node = next(n for n in tree.walk() if n.kind == "action").id[:8]
    (folder / "grader.py").write_text("def short(path):\n    return float(len(path.leaf.text) < 9)\n")
    fork = ("fork", "--tree", "graded.db", "--node", node, "--token", "5", "--policy", "hf:./my-model")
    more = ("--draws", "8", "--change", "remove:1", "--json")
    bare = json.loads(refork(*fork, *more, cwd=folder).stdout)
    assert bare["graded"] == 0
    told = json.loads(refork(*fork, *more, "--judge", "grader.py:short", cwd=folder).stdout)
    assert told["draws"] == 8
    assert 0 <= told["base"]["rate"] <= 1
    alone = refork(*fork, "--draws", "8", cwd=folder).stdout
    assert "8 draws" in alone
    both = ("--judge", "grader.py:short", "--success-regex", "x")
    assert "one judge" in refork(*fork, *both, cwd=folder, status=2).stderr
    costs = ("--change", "remove:9", "--draws", "64")
    with Tree.open(folder / "graded.db", "r") as tree:
        before = sum(len(tree.draws(f.id)) for f in tree.forks())
    assert "cannot take 9" in refork(*fork, *costs, "--seed", "3", cwd=folder, status=2).stderr
    with Tree.open(folder / "graded.db", "r") as tree:
        assert sum(len(tree.draws(f.id)) for f in tree.forks()) == before


class _Terminal:
    @staticmethod
    def isatty():
        return True


@pytest.mark.parametrize(
    ("answers", "pattern"), [((1, "42"), "42"), ((3, "grader.py:short"), None), ((0,), "nobody")]
)
def test_somebody_at_a_terminal_is_asked_who_grades(monkeypatch, tmp_path, answers, pattern):
    from refork.cli import common

    (tmp_path / "grader.py").write_text("def short(trajectory):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    given = iter(answers)
    monkeypatch.setattr(common.typer, "prompt", lambda *_, **__: next(given))

    class Terminals:
        stdin = stdout = _Terminal

    monkeypatch.setattr(common, "sys", Terminals)
    world, judge = common.ask_for_grading(None, None, as_json=False)
    assert world is None
    assert (judge is None) is (pattern == "nobody")
    if pattern == "42":
        assert judge.pattern == "42"
    assert common.ask_for_grading(None, None, as_json=True) == (None, None), "never with --json"
    Terminals.stdout = type("Pipe", (), {"isatty": staticmethod(lambda: False)})
    assert common.ask_for_grading(None, None, as_json=False) == (None, None)
