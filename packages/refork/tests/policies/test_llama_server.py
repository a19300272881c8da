"""Rollouts from the server of llama-cpp-python, on a model made in seconds.

No wheel of it is on the package index: it is compiled where it is installed, in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from refork.errors import ServerError
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.policies.remote import RemotePolicy
from refork.policies.remote.answers import Expected, first_choice, read_completion
from refork.policies.remote.calls import Patience
from refork.policies.remote.endpoint import Endpoint
from refork.sampling.noise import NoiseKey
from refork.tree import Tree
from refork.types import token_array
from refork_testbed.models import build
from support.exported import exported
from support.gguf_file import write_gguf
from support.served import Server, free_port, killed_and_resumed

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
PLACE = Path.home() / ".cache" / "refork" / "peers" / "llama-cpp-python-0.3.36"
HOW = (
    f"the server of llama-cpp-python is not installed: python -m venv {PLACE} && "
    f"{PLACE}/bin/pip install 'llama-cpp-python[server]==0.3.36', or name another Python in REFORK_LLAMA"
)
ASK = ({"role": "user", "content": "one two"},)
HOT = Sampling(max_tokens=6, temperature=3.0)
CONTEXT = 256


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has the server."""
    found = os.environ.get("REFORK_LLAMA") or str(PLACE / "bin" / "python")
    check = [found, "-c", "import llama_cpp.server.app"]
    if not Path(found).exists() or subprocess.run(check, capture_output=True, check=False).returncode:
        pytest.skip(HOW)
    return found


@pytest.fixture(scope="module")
def model(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("test-tiny", tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="module")
def server(python: str, model: Path) -> Iterator[Server]:
    file = write_gguf(model, model.parent / "tiny.gguf")
    port = free_port()
    # Keys and values in float32 (type 0): in float16, its default, log-probs are off by some thousandths.
    command = [
        python, "-m", "llama_cpp.server", "--model", str(file), "--model_alias", "tiny",
        "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(CONTEXT), "--n_threads", "1",
        "--n_threads_batch", "1", "--type_k", "0", "--type_v", "0", "--verbose", "false",
    ]  # fmt: skip
    with Server(command, port, model.parent / "log") as found:
        yield found


@pytest.fixture
def policy(server: Server) -> Iterator[RemotePolicy]:
    made = RemotePolicy(server.url, "tiny", patience=Patience(tries=2, pause=0.0))
    yield made
    made.close()


def requests(count: int, content: str = "one two", stream: int = 1) -> list[Request]:
    asked = ({"role": "user", "content": content},)
    return [Request(token_array([1]), NoiseKey(0, stream, draw), messages=asked) for draw in range(count)]


def told(*arguments: str) -> str:
    return subprocess.run(
        [str(BIN / "refork"), *arguments], capture_output=True, text=True, check=True, timeout=900
    ).stdout


def test_the_probe_says_what_this_server_can_do(server: Server) -> None:
    card = json.loads(told("policy", "probe", f"openai:{server.url}#tiny", "--json"))["policy"]
    assert card["extra"]["mode"] == "chat"
    assert "status 500" in card["extra"]["why_not_tokens"]
    assert "valid string" in card["extra"]["why_not_tokens"]
    assert card["capabilities"] == ["paired"]
    assert card["extra"]["seed"] == "honoured"
    # It takes the words that switch its filters off.
    assert "filters" not in card["extra"]


def test_rollouts_are_recorded(server: Server, tmp_path: Path) -> None:
    told(
        "grow", "--world", "lock", "--policy", f"openai:{server.url}#tiny", "--set", "tasks.count=2",
        "--draws", "2", "--set", "sampling.max_tokens=6", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    with Tree.open(tmp_path / "run" / "tree.db") as tree:
        rows = [json.loads(line) for line in exported(tree).splitlines()]
    assert sum(row.get("kind") == "verdict" for row in rows) == 4
    assert sum(row.get("kind") == "action" for row in rows) >= 4


def test_seeds_make_draws_again_in_any_order_and_number_at_once(server: Server, policy: RemotePolicy) -> None:
    first = [one.text for one in sample_all(policy, requests(12), HOT)]
    alone = RemotePolicy(server.url, "tiny", concurrency=1)
    again = [one.text for one in sample_all(alone, requests(12)[::-1], HOT)][::-1]
    other = [one.text for one in sample_all(policy, requests(12, stream=2), HOT)]
    alone.close()
    assert first == again
    assert first != other
    assert len(set(first)) > 6


def test_nothing_is_filtered_that_nobody_asked_to_filter(policy: RemotePolicy, model: Path) -> None:
    """By itself it draws from a top-k of 40, top-p of 0.95 and min-p of 0.05, with repeats penalised."""
    local = LocalPolicy.load(str(model))
    prefix = local.render([], token_array([]), ASK).tokens
    distribution = np.exp(local.next_logprobs([prefix])[0].astype(np.float64))
    # Its own filters act before the temperature, so they would leave one word alone.
    assert np.sort(distribution)[-2] < 0.05 * distribution.max()
    hot = distribution ** (1 / HOT.temperature) / (distribution ** (1 / HOT.temperature)).sum()
    draws = 300
    said = [one.text for one in sample_all(policy, requests(draws), HOT.but(max_tokens=1))]
    likeliest = local.decode(token_array([int(distribution.argmax())]))
    chance = hot.max()
    # Fixed seeds; with others this would fail once in about 15 000 times (4 standard errors).
    gap = abs(said.count(likeliest) / draws - chance)
    assert gap < 4 * np.sqrt(chance * (1 - chance) / draws)
    assert len(set(said)) > 5


def test_its_logprobs_are_the_local_models(server: Server, model: Path) -> None:
    """Its completions give log-probs of temperature 1 without token ids; the policy's draws have none."""
    local = LocalPolicy.load(str(model))
    prefix = [int(i) for i in local.render([], token_array([]), ASK).tokens]
    endpoint = Endpoint(server.url, "tiny")
    compared, gaps = 0, []
    for seed in range(12):
        body = {"prompt": "<|user|>one two<|end|><|assistant|>", "max_tokens": 4, "seed": seed} | {
            "temperature": 3.0, "top_p": 1.0, "logprobs": 5, "n": 3,
        }  # fmt: skip
        answer = endpoint.completion(body, "here", {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0})
        # It takes ``n`` and gives one choice; k draws are k requests for any server.
        assert len(answer["choices"]) == 1
        choice = first_choice(answer, server.url, "here")
        said = read_completion(choice, Expected(server.url, "here", prefix, 4))
        assert said.ids is None
        assert said.values is not None
        assert said.top is not None
        # Special tokens share the name "", so there may be fewer than the five.
        assert all(1 <= len(top) <= 6 for top in said.top)
        pieces = choice["logprobs"]["tokens"]
        ids = [int(i) for piece in pieces for i in local.encode(piece)]
        if len(ids) != len(pieces):
            continue  # a special token among them, which it writes as nothing
        ours = local.logprobs([token_array(prefix + ids)])[0][len(prefix) - 1 :]
        gaps += list(np.abs(np.array(said.values) - ours))
        compared += len(ids)
    endpoint.close()
    assert compared > 15
    # Both compute in float32 and add in another order; measured 4e-6 at most.
    assert max(gaps) < 1e-3


def test_stop_strings_and_limits(policy: RemotePolicy) -> None:
    cold = Sampling(max_tokens=6, temperature=0.0)
    free = sample_all(policy, requests(1), cold)[0]
    assert (free.text, free.finish) == ("then comes three", "stop")
    cut = sample_all(policy, requests(1), cold.but(stop=(" three",)))[0]
    assert (cut.text, cut.finish) == ("then comes", "stop")
    short = sample_all(policy, requests(1), cold.but(max_tokens=2))[0]
    assert (short.text, short.finish) == ("then comes", "length")
    assert short.cost.tokens_out == 2


def test_another_models_name_is_refused_though_this_server_answers_to_any(server: Server) -> None:
    policy = RemotePolicy(server.url, "tinny")
    with pytest.raises(ServerError, match=r"no model 'tinny'.*answers to any name") as caught:
        _ = policy.card
    assert caught.value.hint == "it lists 'tiny'"
    policy.close()


def test_a_prompt_that_is_too_long_is_an_error_of_its_own(policy: RemotePolicy) -> None:
    asked = [*requests(2), *requests(1, "one " * CONTEXT)]
    said = sample_all(policy, asked, Sampling(max_tokens=4))
    assert [one.finish for one in said[:2]] == ["stop", "stop"]
    assert said[2].finish == "error"
    assert f"maximum context length is {CONTEXT} tokens" in str(said[2].error)


def test_a_killed_server_ends_the_run_and_the_same_run_goes_on(server: Server, policy: RemotePolicy) -> None:
    killed_and_resumed(server, policy, HOT)
