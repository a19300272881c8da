from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork_methods.crosscoder.commands import app
from refork_methods.crosscoder.pictures import steering_figure

RUN = CliRunner()


def test_the_commands_are_there_with_an_example():
    for verb in ("patch", "steer", "audit"):
        told = RUN.invoke(app, [verb, "--help"])
        assert told.exit_code == 0
        assert f"refork crosscoder {verb}" in told.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two policies and a crosscoder on disk, over a world whose prompts they can read."""
    from refork.policies.local import LocalPolicy
    from refork.worlds.open import open_world
    from refork_methods.crosscoder.exchange import save
    from refork_methods.crosscoder.model import CrossCoder
    from refork_methods.crosscoder.normalizer import fit_normalizer
    from refork_methods.crosscoder.paired import read_pairs
    from refork_methods.crosscoder.partition import Partition
    from refork_methods.crosscoder.trials import world_trials
    from refork_methods.train.run import save_policy
    from support.crosscoder_pair import tiny_policy

    folder = tmp_path_factory.mktemp("crosscoder")
    world = open_world("lock")
    policies: list[LocalPolicy] = [tiny_policy(seed) for seed in (0, 1)]
    open_now = set()

    class Watched:
        def __init__(self, episode):
            self.episode = episode
            open_now.add(self)

        def __getattr__(self, name):
            return getattr(self.episode, name)

        def close(self):
            self.episode.close()
            open_now.remove(self)

    class Place:
        name, max_turns = world.name, world.max_turns

        def start(self, task, seed):
            return Watched(world.start(task, seed))

    trials = world_trials(policies[0], Place(), world.tasks("held-out", 8), short=2, long=4)
    trials.score(0, "")
    assert open_now == set()
    pairs = read_pairs(*policies, trials.prompts, 1)
    normalizer = fit_normalizer([(pairs.a.numpy(), pairs.b.numpy())])
    coder = CrossCoder(
        (16, 16), 40, 20, "topk", Partition(0.25, 0.25), normalizer, seed=3, origin={"layer": 1}
    )
    save(coder, folder / "coder")
    for name, policy in zip("ab", policies, strict=True):
        save_policy(policy, folder / name)
    return folder


def arguments(place, verb, *more):
    return [
        verb, str(place / "coder"), "--a", f"hf:{place / 'a'}", "--b", f"hf:{place / 'b'}",
        "--world", "lock", "--tasks", "8", "--caps", "2,4", *more,
    ]  # fmt: skip


def test_patch_and_audit_print_what_they_found(place):
    told = json.loads(RUN.invoke(app, arguments(place, "patch", "--json")).stdout)
    assert set(told) >= {"clean", "patched", "mismatched", "fve", "gain", "holm_p"}
    assert "units forgotten" in RUN.invoke(app, arguments(place, "patch")).stdout
    told = json.loads(RUN.invoke(app, arguments(place, "audit", "--json")).stdout)
    assert told["spillover"]["prompts"] == 8
    assert told["claim"]


def test_steer_draws_its_curve(place, tmp_path):
    picture = tmp_path / "curve.svg"
    more = ("--features", "0", "--alphas", "1,4", "--svg", str(picture))
    told = json.loads(RUN.invoke(app, arguments(place, "steer", *more, "--json")).stdout)
    assert told["alphas"] == [1.0, 4.0]
    assert told["score"][0] == told["clean"]
    assert told["best"]["selection"] == "split_half"
    assert picture.read_text().startswith("<svg xmlns")


def test_what_cannot_be_is_refused(place):
    for more in (("--in", "C"), ("--caps", "4"), ("--features", "x")):
        verb = "steer" if more[0] == "--features" else "patch"
        assert RUN.invoke(app, arguments(place, verb, *more)).exit_code != 0
    # Feature 12 is in B's block: it cannot steer A.
    refused = RUN.invoke(app, arguments(place, "steer", "--features", "12"))
    assert "exclusive to B" in str(refused.exception) + refused.output


def test_a_picture_names_its_band_and_every_strength():
    figure = steering_figure(
        [4, 0, 1], [(0.8, 0.7, 0.9), (0.4, 0.3, 0.5), (0.6, 0.5, 0.7)], [(0.55, 0.6, 0.65)] * 3, 0.6, "t"
    )
    own = [row for row in figure.rows if row[0].startswith("this feature")]
    assert [row[1:] for row in own] == [
        ("0", "0.4", "0.3 to 0.5"), ("1", "0.6", "0.5 to 0.7"), ("4", "0.8", "0.7 to 0.9"),
    ]  # fmt: skip
    assert [row[0][:17] for row in figure.rows[3:]] == ["random directions"] * 3 + ["unchanged"]


def test_cache_reads_labelled_texts_with_both_policies(place, tmp_path):
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"ab {i}", "label": "x"}) + "\n" for i in range(3)))
    command = ["cache", "--texts", str(texts), "--a", f"hf:{place / 'a'}", "--b", f"hf:{place / 'b'}"]
    command += ["--layer", "1", "--tokens", "last", "--out", str(tmp_path / "cache")]
    told = json.loads(RUN.invoke(app, [*command, "--json"]).stdout)
    assert (told["texts"], told["rows"]) == (3, 3)
    assert "3 pairs of activations" in RUN.invoke(app, command).stdout
    assert RUN.invoke(app, [*command, "--tokens", "some"]).exit_code != 0
