"""A server of three tokens with a generator for each request, as vLLM has; and its laws enumerated."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from refork.policies.base import Sampling

Floats = NDArray[np.float64]
TOKENS = 3


def logits(ids: list[int]) -> Floats:
    """Logits [3] after some tokens: fixed numbers of the last one and of how many there are."""
    return np.asarray(np.random.default_rng([ids[-1], len(ids)]).normal(size=TOKENS) * 1.2)


def normal(scores: Floats) -> Floats:
    """Log-probs of scores."""
    shifted = scores - scores.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def shaped(scores: Floats, prompt: list[int], said: list[int], body: Mapping[str, Any]) -> Floats:
    """Log-probs [3] that a request is drawn by, in vLLM's order; ``scores`` have bans and biases in them."""
    scores = scores.copy()
    # The probe's prompt has tokens that this server never says.
    for token in {t for t in (*prompt, *said) if t < TOKENS}:
        rate = body.get("repetition_penalty", 1.0)
        scores[token] = scores[token] / rate if scores[token] > 0 else scores[token] * rate
    for token in set(said):
        scores[token] -= body.get("frequency_penalty", 0.0) * said.count(token)
        scores[token] -= body.get("presence_penalty", 0.0)
    distribution = normal(scores / body["temperature"])
    distribution = normal(
        np.where(
            np.exp(distribution) >= body.get("min_p", 0.0) * np.exp(distribution.max()), distribution, -np.inf
        )
    )
    distribution = normal(
        np.where(
            distribution >= np.sort(distribution)[-min(body.get("top_k", TOKENS), TOKENS)],
            distribution,
            -np.inf,
        )
    )
    order = np.argsort(-distribution, kind="stable")
    before = np.cumsum(np.exp(distribution[order])) - np.exp(distribution[order])
    distribution[order[before >= body.get("top_p", 1.0)]] = -np.inf
    return normal(distribution)


#: What a request may say about its distribution; all else is about its length and its answer.
NAMES = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


@lru_cache(maxsize=1 << 16)
def distribution_of(
    prompt: tuple[int, ...],
    said: tuple[int, ...],
    asked: tuple[Any, ...],
    bias: tuple[tuple[str, float], ...],
) -> tuple[Floats, Floats]:
    """Chances [3] that a request is drawn by, and the model's own log-probs; remembered, since they recur."""
    bare = logits([*prompt, *said])
    scores = bare.copy()
    for token, value in bias:
        scores[int(token)] += value
    body = {name: value for name, value in zip(NAMES, asked, strict=True) if value is not None}
    if body["temperature"] == 0:
        return np.eye(TOKENS)[int(np.argmax(scores))], normal(bare)
    return np.exp(shaped(scores, list(prompt), list(said), body)), normal(bare)


def answer(body: Mapping[str, Any], biased: bool = True) -> dict[str, Any]:
    """What the server says to a completion: its generator begins with the request's seed."""
    rng = np.random.default_rng(body["seed"]) if "seed" in body else np.random.default_rng()
    prompt, said, values = list(body["prompt"]), list[int](), list[float]()
    asked = tuple(body.get(name) for name in NAMES)
    bias = tuple((body.get("logit_bias") or {}).items()) if biased else ()
    for _ in range(body["max_tokens"]):
        distribution, bare = distribution_of(tuple(prompt), tuple(said), asked, bias)
        # Exponential races, as vLLM draws: every token takes a number of its own for each candidate.
        token = int((distribution / rng.standard_exponential(TOKENS)).argmax())
        said.append(token)
        values.append(float(bare[token]))
    block: dict[str, Any] = {
        "tokens": [f"token_id:{i}" for i in said], "token_logprobs": values, "top_logprobs": None
    }  # fmt: skip
    if body.get("echo"):
        before = [float(normal(logits(prompt[:i]))[prompt[i] % TOKENS]) for i in range(1, len(prompt))]
        block = {
            "tokens": [f"token_id:{i}" for i in prompt + said],
            "token_logprobs": [None, *before, *values],
        }
    choice = {"text": "".join("abc"[i] for i in said), "token_ids": said, "logprobs": block}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(said)}
    return {"choices": [choice | {"finish_reason": "length"}], "usage": usage}


def enumerated(
    prompt: list[int], begun: list[int], settings: Sampling, length: int, exclude: int | None = None
) -> Floats:
    """The exact chance of every sequence [3] * length that a draw may say."""
    found = np.zeros([TOKENS] * length)
    asked = settings.to_json() | {"temperature": settings.temperature}
    for said in product(range(TOKENS), repeat=length):
        chance = 1.0
        for place, token in enumerate(said):
            if place < len(settings.forced):
                chance *= token == settings.forced[place]
                continue
            first = place == len(settings.forced)
            scores = logits([*prompt, *begun, *said[:place]])
            scores[list(settings.banned) + list(settings.banned_first) * first] = -np.inf
            distribution = np.exp(shaped(scores, prompt, [*begun, *said[:place]], asked))
            if first and exclude is not None:
                distribution[exclude] = 0.0
            chance *= distribution[token] / distribution.sum()
        found[said] = chance
    return found


@final
class InProcess:
    """The server without a wire, for many draws: JSON there and back, and the seeds that it was sent."""

    server = "in process"

    def __init__(self, biased: bool) -> None:
        self.biased = biased
        self.seeds: list[int] = []

    def completion(self, body: dict[str, Any], what: str, extra: dict[str, Any] | None = None) -> Any:
        """The answer to a completion."""
        asked = json.loads(json.dumps(body | (extra or {})))
        if not body.get("echo"):
            self.seeds.append(asked["seed"])
        return json.loads(json.dumps(answer(asked, self.biased)))

    def detokenize(self, tokens: Any) -> str:
        """Text of token ids."""
        return "".join("abc"[i] for i in tokens)


@contextmanager
def serving(biased: bool) -> Iterator[str]:
    """The address of the server on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send({"data": [{"id": "three", "owned_by": "vllm"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/detokenize"):
                self.send({"prompt": "".join("abc"[i] for i in body["tokens"])})
            else:
                self.send(answer(body, biased))

        def send(self, found: dict[str, Any]) -> None:
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
