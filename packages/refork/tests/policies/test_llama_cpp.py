"""Token-exact rollouts from llama.cpp's own server, on a model made in seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from refork.errors import ServerError
from refork.forking import fork
from refork.growing.rollouts import grow
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.policies.remote import RemotePolicy
from refork.policies.remote.calls import Patience
from refork.sampling.noise import NoiseKey
from refork.tree import Tree
from refork.types import IntArray, token_array
from refork.worlds.open import open_world
from refork_testbed.models import build
from support.exported import exported
from support.gguf_file import write_gguf
from support.served import Server, free_port, killed_and_resumed

BINARY = os.environ.get("REFORK_LLAMA_SERVER") or shutil.which("llama-server")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BINARY is None, reason="no llama-server: install llama.cpp, or name it in REFORK_LLAMA_SERVER"
    ),
]

ASK = ({"role": "user", "content": "one two"},)
HOT = Sampling(max_tokens=6, temperature=3.0)
CONTEXT = 256
#: Weights, keys, values and sums are float32 on both sides and added in another order: measured 7e-6.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("test-tiny", tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="module")
def local(model: Path) -> LocalPolicy:
    return LocalPolicy.load(str(model))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    assert BINARY is not None
    file, port = write_gguf(model, model.parent / "tiny.gguf"), free_port()
    # Flash attention and a cache in float16, its defaults, move log-probs by up to some hundredths.
    command = [
        BINARY, "-m", str(file), "--alias", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "-c", str(4 * CONTEXT), "-np", "4", "-t", "1", "-tb", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off",
    ]  # fmt: skip
    with Server(command, port, model.parent / "log") as found:
        yield found


@pytest.fixture
def policy(server: Server, model: Path) -> Iterator[RemotePolicy]:
    made = RemotePolicy(server.url, "tiny", tokenizer=str(model), patience=Patience(tries=2, pause=0.0))
    yield made
    made.close()


@pytest.fixture
def prefix(local: LocalPolicy) -> IntArray:
    return local.render([], token_array([]), ASK).tokens


def requests(prefix: IntArray, count: int) -> list[Request]:
    return [Request(prefix, NoiseKey(0, 1, draw)) for draw in range(count)]


def test_it_takes_and_gives_token_ids(policy: RemotePolicy) -> None:
    assert policy.card.capabilities == {"tokens", "logprobs", "paired"}
    assert policy.card.extra["logprobs_of"] == "t1"
    assert policy.card.context == CONTEXT


@pytest.mark.parametrize("settings", [Sampling(max_tokens=6), HOT, HOT.but(banned=(2,), entropy_top_k=5)])
def test_log_probs_of_its_draws_are_the_local_models(
    policy: RemotePolicy, local: LocalPolicy, prefix: IntArray, settings: Sampling
) -> None:
    for one in sample_all(policy, requests(prefix, 12), settings):
        ours = local.logprobs([np.concatenate([prefix, one.tokens])])[0][len(prefix) - 1 :]
        assert one.logprobs_t1 is not None
        np.testing.assert_allclose(one.logprobs_t1, ours, atol=TOLERANCE)
        assert one.text == local.decode(one.tokens)
        assert not set(one.tokens) & set(settings.banned)
        assert (one.entropy is None) == (settings.entropy_top_k is None)


def test_draws_can_be_made_again_alone(
    policy: RemotePolicy, server: Server, model: Path, prefix: IntArray
) -> None:
    alone = RemotePolicy(server.url, "tiny", tokenizer=str(model), concurrency=1)
    first = sample_all(policy, requests(prefix, 12), HOT)
    again = sample_all(alone, requests(prefix, 12)[::-1], HOT)[::-1]
    alone.close()
    assert [list(one.tokens) for one in first] == [list(one.tokens) for one in again]
    assert len({tuple(one.tokens) for one in first}) > 6


def test_nothing_is_filtered_that_nobody_asked_to_filter(
    policy: RemotePolicy, local: LocalPolicy, prefix: IntArray
) -> None:
    """By itself it draws from a top-k of 40, a top-p of 0.95 and a min-p of 0.05."""
    distribution = np.exp(local.next_logprobs([prefix])[0].astype(np.float64)) ** (1 / HOT.temperature)
    distribution /= distribution.sum()
    draws = 300
    said = [int(one.tokens[0]) for one in sample_all(policy, requests(prefix, draws), HOT.but(max_tokens=1))]
    best = int(distribution.argmax())
    # Fixed seeds; with others this would fail once in about 15 000 times (4 standard errors).
    assert abs(said.count(best) / draws - distribution[best]) < 4 * np.sqrt(
        distribution[best] * (1 - distribution[best]) / draws
    )
    assert any(distribution[token] < 0.05 * distribution[best] for token in said)


def test_turns_end_at_stop_strings_and_ids_with_the_tokens_that_make_them(
    policy: RemotePolicy, prefix: IntArray
) -> None:
    """It cuts the tokens of a stop string off its answer, and knows no stop ids."""
    free = sample_all(policy, requests(prefix, 12), HOT)
    for settings in (HOT.but(stop=("th", "five")), HOT.but(stop_ids=tuple(range(100, 126)))):
        for one, whole in zip(sample_all(policy, requests(prefix, 12), settings), free, strict=True):
            assert list(one.tokens) == list(whole.tokens[: len(one.tokens)])
            assert one.logprobs_t1 is not None
            assert len(one.logprobs_t1) == len(one.tokens)
            met = any(stop in one.text for stop in settings.stop)
            met = met or (len(one.tokens) > 0 and one.tokens[-1] in settings.stop_ids)
            assert len(one.tokens) == len(whole.tokens) or (met and one.finish == "stop")


def test_without_a_tokenizer_its_own_renders_and_reads(
    server: Server, local: LocalPolicy, prefix: IntArray
) -> None:
    bare = RemotePolicy(server.url, "tiny")
    assert list(bare.render([], token_array([]), ASK).tokens) == list(prefix)
    assert list(bare.encode(" three two")) == list(local.encode(" three two"))
    assert bare.decode(local.encode(" three two")) == " three two"
    one = sample_all(bare, requests(prefix, 1), Sampling(max_tokens=6, temperature=0.0))[0]
    bare.close()
    assert one.text == "then comes three"


def test_forks_inside_a_turn(policy: RemotePolicy, local: LocalPolicy) -> None:
    world = open_world("lock")
    with Tree.memory() as tree:
        root = grow(tree, policy, world, world.tasks("train", 1), draws=2, settings=HOT)[0].forks[0]
        action = next(step.node for step in root.leaves()[0] if step.node.kind == "action")
        arm = fork(tree.at(action.id, token=2), policy, 6, settings=HOT, world=world)
        assert len(arm.draws) == 6
        assert b'"end": "error"' not in exported(tree)


def test_a_prompt_that_is_too_long_is_an_error_of_its_own(policy: RemotePolicy, prefix: IntArray) -> None:
    asked = [*requests(prefix, 2), *requests(token_array(list(prefix) * 100), 1)]
    said = sample_all(policy, asked, Sampling(max_tokens=4))
    assert [one.finish == "error" for one in said] == [False, False, True]
    assert "exceeds the available context size" in str(said[2].error)


def test_another_models_name_is_refused_though_this_server_answers_to_any(server: Server) -> None:
    with pytest.raises(ServerError, match=r"no model 'tinny'.*answers to any name"):
        _ = RemotePolicy(server.url, "tinny").card


def test_a_killed_server_ends_the_run_and_the_same_run_goes_on(server: Server, policy: RemotePolicy) -> None:
    killed_and_resumed(server, policy, HOT)
