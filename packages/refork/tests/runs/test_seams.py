"""Watching methods are there while somebody watches, see what happens, and are gone after."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.growing.rollouts import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.policies.scripted import ScriptedPolicy
from refork.runs import seams, sections
from refork.runs.attach import Attachment, ClassPattern
from refork.runs.profile import Profile
from refork.runs.sections import SectionStack
from refork.tree.sqlite import SQLiteDatabase
from refork.tree.tree import Tree
from refork.worlds.open import open_world

LAW = Sampling(max_tokens=40)


class Kept:
    def __init__(self):
        self.closed_ = []

    def opened(self, section):
        pass

    def ran(self, section, began, ended, own):
        pass

    def closed(self, section):
        self.closed_.append(section)


@pytest.fixture
def watched():
    kept = Kept()
    attached = seams.watch_all()
    before = sections.keep(SectionStack([kept], content=True))
    yield kept
    sections.keep(before)
    attached.detach()


def rollouts(tree):
    policy, world = open_policy("scripted:lock"), open_world("lock")
    grow(tree, policy, world, world.tasks("held-out", 2, 0), draws=4, settings=LAW, seed=0)


def test_every_named_seam_is_there():
    """A class or method that is renamed must be renamed in the list, too."""
    pytest.importorskip("psycopg")
    for module, classes in seams.NAMED.items():
        if module.endswith("ray_pool"):
            continue
        for name, methods in classes.items():
            kind = getattr(importlib.import_module(module), name)
            assert all(callable(getattr(kind, method)) for method in methods), (module, name)


def test_what_grows_is_seen_call_by_call(watched):
    with Tree.memory() as tree:
        rollouts(tree)
    of = {kind: [s for s in watched.closed_ if s.kind == kind] for kind in ("model", "world", "store")}
    (call,) = of["model"]
    assert call.name == seams.SAMPLING
    assert call.attributes["refork.requests"] == 8
    assert call.attributes["gen_ai.request.model"] == "scripted:lock"
    assert call.attributes["gen_ai.usage.output_tokens"] == 8 * 33
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert [s.attributes["gen_ai.tool.name"] for s in of["world"]] == ["lock"] * 8
    assert all(s.attributes["refork.world.done"] for s in of["world"])
    assert of["store"]
    assert len(call.marks["texts"]) == 8


def test_the_same_is_drawn_watched_and_not(watched):
    def texts():
        with Tree.memory() as tree:
            rollouts(tree)
            return [node.text for node in tree.walk()]

    seen = texts()
    before = sections.keep(None)
    assert texts() == seen
    sections.keep(before)


def test_a_local_model_has_passes_and_a_prefix_cache(watched):
    from support.models import tiny_policy

    profile = Profile(0, 0.0)
    sections.keep(SectionStack([watched, profile]))
    policy = tiny_policy()
    with Tree.memory() as tree:
        start = plant_prompt(tree, policy, "a b " * 24)
        for seed in (0, 1):
            fork(start, policy, 4, settings=Sampling(max_tokens=6), seed=seed)
    calls = [s for s in watched.closed_ if s.kind == "model"]
    assert len(calls) == 2
    assert "gen_ai.usage.cache_read.input_tokens" in calls[0].attributes
    assert calls[1].attributes["gen_ai.usage.cache_read.input_tokens"] > 0
    rows = {row.name: row for row in profile.rows()}
    assert rows[seams.FORWARD].calls >= 6
    assert {seams.SAMPLING, seams.TOKENS, seams.STORE} <= set(rows)


def test_a_model_on_a_server_is_waited_for_and_says_what_it_had_cached(watched):
    from refork.policies.remote import RemotePolicy
    from support.openai_server import CODEC, Script, serving

    with serving(Script()) as url, Tree.memory() as tree:
        policy = RemotePolicy(url, "m", tokenizer=CODEC)
        fork(plant_prompt(tree, policy, "abc"), policy, 3, settings=Sampling(max_tokens=4))
        policy.close()
    whole = [s for s in watched.closed_ if s.name == seams.SERVER]
    calls = [s for s in watched.closed_ if s.name == "server call"]
    assert [s.attributes["refork.requests"] for s in whole] == [3]
    assert len(calls) == 3
    assert {s.attributes["gen_ai.provider.name"] for s in calls} == {"openai"}
    counted = [sum(s.attributes["gen_ai.usage.output_tokens"] for s in some) for some in (whole, calls)]
    assert counted[0] <= counted[1]
    assert all(s.parent.up("model") is whole[0] for s in calls)


def test_training_has_passes_back_and_optimizer_steps(watched):
    import torch

    from support.models import make_model

    profile = Profile(0, 0.0)
    sections.keep(SectionStack([profile]))
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    ids = torch.tensor([[1, 2, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    calls = {row.name: row.calls for row in profile.rows()}
    assert (calls[seams.FORWARD], calls[seams.BACKWARD], calls[seams.OPTIMIZER]) == (1, 1, 1)


def test_everything_is_given_back():
    sample, commit = ScriptedPolicy.sample, SQLiteDatabase.commit
    finders = list(sys.meta_path)
    attached = seams.watch_all()
    assert ScriptedPolicy.sample is not sample
    attached.detach()
    assert ScriptedPolicy.sample is sample
    assert SQLiteDatabase.commit is commit
    assert sys.meta_path == finders


def test_a_call_that_fails_keeps_its_error(watched):
    policy = open_policy("scripted:coin")
    with pytest.raises(Exception, match="token"):
        policy.logprobs([[10**6, 10**6]])
    (call,) = [s for s in watched.closed_ if s.kind == "model"]
    assert call.error is not None


def test_modules_that_are_loaded_later_are_watched_too(tmp_path, monkeypatch):
    (tmp_path / "laterworld.py").write_text("class Thing:\n    def act(self):\n        return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    wrap = seams.noticed(lambda thing, given: seen.append(given), ("what",))
    attached = Attachment({}, (ClassPattern(frozenset({"act"}), {"act": wrap}),), within=("laterworld",))
    attached.attach()
    import laterworld

    assert laterworld.Thing().act() == 1
    attached.detach()
    laterworld.Thing().act()
    assert seen == [{}]
    del sys.modules["laterworld"]


def test_nothing_of_opentelemetry_is_read_while_it_is_off(tmp_path):
    code = (
        "import sys\n"
        "from refork.runs.observe import observed\n"
        "with observed('x', record=False) as run:\n"
        "    run('stage', 1, 2)\n"
        "assert run.recorder is None\n"
        "assert not any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={"PATH": ""}, timeout=900)


def test_the_shapes_fit_what_the_package_ships():
    from refork.policies.remote import RemotePolicy
    from refork.worlds.game import GameEpisode, GameWorld

    assert seams._POLICY.fits(RemotePolicy)
    assert seams._POLICY.fits(ScriptedPolicy)
    assert seams._EPISODE.fits(GameEpisode)
    assert seams._WORLD.fits(GameWorld)
    assert not seams._POLICY.fits(Path)


def test_a_call_that_cannot_be_read_goes_on():
    class Odd:
        def sample(self, what):
            yield from what

        def score(self):
            return 3

    def unreadable(*call):
        raise TypeError("no such thing")

    keeper = SectionStack([])
    before = sections.keep(keeper)
    odd = seams.drawn(unreadable, unreadable)(Odd.sample)(Odd(), [1, 2])
    assert list(odd) == [1, 2]
    assert seams.timed("x", "model", before=unreadable, heard=unreadable)(Odd.score)(Odd()) == 3
    sections.keep(before)
    assert len(keeper.refused) == 5


def test_two_attachments_both_hear_of_a_module_that_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "heardtwice.py").write_text("class Thing:\n    def act(self):\n        return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    wrap = seams.noticed(lambda thing, given: seen.append(given), ())
    both = [Attachment({"heardtwice": {"Thing": {"act": wrap}}}) for _ in range(2)]
    for one in both:
        one.attach()
    import heardtwice

    assert heardtwice.Thing().act() == 1
    for one in reversed(both):
        one.detach()
    assert seen == [{}, {}]
    assert not hasattr(heardtwice.Thing.act, "__wrapped__")
    del sys.modules["heardtwice"]
