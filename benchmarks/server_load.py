"""Streaming clients on one organism: Refork's server, plain and with a drafter, beside `transformers serve`.

Every server is a process of its own on loopback, on the same two cores and the same folder (the organism
`chronicler`, 8 layers x 512, float32); the clients are the official `openai` one. 1, 8, 32 and 128 of them
ask at the same time, greedy, for the same number of tokens; servers take turns. Every answer is compared with
the policy's own continuation. On Refork's servers a further round draws with seeds at temperature 1, and each
answer must be the policy's draw under that seed.

`transformers serve` runs with continuous batching (with the settings that `benchmarks/decode_speed.py` takes
in its quick form) and without; without, it answers one request after another, so it is asked only with few
clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openai
from rich.console import Console
from rich.table import Table

from parts.decode_models import TARGET, drafter, drafter_folder, openings, prompts, target, threads
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey
from refork.serve.engine_model import SEEDED
from refork_methods.speculate.profile import profile
from refork_methods.speculate.speculator import ModelSpeculator
from refork_testbed.models import path

CLIENTS = (1, 8, 32, 128)
#: Tokens of passes that the quick form profiles.
SHAPES = (1, 4, 16, 64, 128, 256)
#: Tokens of an answer by clients in the quick form; 64 in the full one.
QUICK = {1: 32, 8: 24, 32: 12, 128: 5}
WIDTH = 64
PATIENCE = 600.0
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Answer:
    """One answer as its client saw it: when its first piece came and its last, in seconds after it asked."""

    number: int
    text: str
    finish: str | None
    first: float
    last: float
    tokens: int
    error: str | None = None

    @property
    def gap(self) -> float:
        """Seconds per token after the first."""
        return (self.last - self.first) / max(1, self.tokens - 1)


@dataclass(frozen=True)
class Round:
    """What so many clients got: their answers, and the seconds from the first question to the last piece."""

    answers: list[Answer]
    seconds: float


@dataclass(frozen=True)
class Server:
    """A server that answers, and the name of its model."""

    name: str
    client: openai.AsyncOpenAI
    model: str
    ours: bool


async def ask(server: Server, number: int, opening: str, count: int, **law: Any) -> Answer:
    began = time.perf_counter()
    first = last = 0.0
    text, finish = "", None
    try:
        stream = await server.client.chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": opening}], max_tokens=count,
            stream=True, **law,
        )  # fmt: skip
        async for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.content:
                    last = time.perf_counter() - began
                    first = first or last
                    text += choice.delta.content
                finish = choice.finish_reason or finish
    except openai.OpenAIError as error:
        return Answer(number, text, finish, first, last, count, type(error).__name__)
    return Answer(number, text, finish, first, last, count)


def crowd(server: Server, asked: Sequence[str], count: int, seeded: bool = False) -> Round:
    """All ask at once; answer i is drawn with seed i where ``seeded``."""

    async def run() -> list[Answer]:
        distribution: list[dict[str, Any]] = [
            {"temperature": 1.0, "seed": i} if seeded else {"temperature": 0.0} for i in range(len(asked))
        ]
        return await asyncio.gather(
            *(ask(server, i, text, count, **distribution[i]) for i, text in enumerate(asked))
        )

    began = time.perf_counter()
    answers = LOOP.run_until_complete(run())
    return Round(answers, time.perf_counter() - began)


LOOP = asyncio.new_event_loop()


def expected(policy: LocalPolicy, asked: Sequence[str], count: int, seeded: bool) -> list[tuple[str, int]]:
    """The policy's own continuation of each question: its text, and how many tokens."""
    settings = Sampling(temperature=1.0 if seeded else 0.0, max_tokens=count)
    requests = [
        Request(ids, NoiseKey(i if seeded else 0, SEEDED, 0)) for i, ids in enumerate(prompts(policy, asked))
    ]
    return [(item.text, len(item.tokens)) for item in sample_all(policy, requests, settings)]


def checked(found: Round, right: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """How many answers are wrong, and how many never came whole."""
    lost = [a for a in found.answers if a.error is not None or a.finish is None]
    wrong = [a for a in found.answers if a not in lost and a.text != right[a.number][0]]
    return len(wrong), len(lost)


# -- servers -----------------------------------------------------------------------------------------


@contextmanager
def servers(folder: Path, drafts: Path, cost: Path, quick: bool) -> Iterator[list[Server]]:
    """All of them, started together; stopped at the end."""
    refork = [
        str(BIN / "refork"),
        "serve",
        "--model",
        f"{TARGET}={folder}",
        "--width",
        str(WIDTH),
        "--waiting",
        "512",
    ]
    there = [
        str(BIN / "transformers"),
        "serve",
        str(folder),
        "--device",
        "cpu",
        "--attn-implementation",
        "sdpa",
    ]
    batching = ["--continuous-batching", "--cb-num-blocks", "128", "--cb-max-batch-tokens", "512"]
    commands = {
        "refork": (refork, TARGET, True),
        "refork + dspark": ([*refork, "--drafter", str(drafts), "--draft-cost", str(cost)], TARGET, True),
        "transformers serve, batching": ([*there, *batching], str(folder), False),
        "transformers serve": (there, str(folder), False),
    }
    started: list[subprocess.Popen[bytes]] = []
    found = []
    with tempfile.TemporaryDirectory() as logs:
        try:
            for name, (command, model, ours) in commands.items():
                port = free_port()
                log = (Path(logs) / f"{port}.log").open("wb")
                host = ["--host", "127.0.0.1", "--port", str(port)]
                started.append(
                    subprocess.Popen(
                        [*command, *host], stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "2"}
                    )
                )
                client = openai.AsyncOpenAI(
                    base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=PATIENCE,
                )  # fmt: skip
                found.append((port, log.name, started[-1], Server(name, client, model, ours)))
            for port, log_name, process, server in found:
                wait_for(port, process, Path(log_name), server.name)
            yield [server for *_, server in found]
        finally:
            for process in started:
                process.terminate()
            for process in started:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path, name: str) -> None:
    for _ in range(1200):
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"{name} did not start:\n{log.read_text()[-2000:]}")


# -- what is measured --------------------------------------------------------------------------------


def measure(
    found: Sequence[Server], asked: Sequence[str], lengths: dict[int, int], rounds: int, quick: bool
) -> dict[tuple[str, int], list[Round]]:
    """Rounds of every server at every number of clients, servers in turns."""
    measured: dict[tuple[str, int], list[Round]] = {}
    for server in found:
        crowd(server, asked[:2], 4)  # what is built by the first request is not timed
    for clients in CLIENTS:
        for turn in range(rounds):
            for server in found[:: 1 if turn % 2 == 0 else -1]:
                # One after another: beyond this it measures only its queue.
                if server.name == "transformers serve" and clients > (1 if quick else 32):
                    continue
                if quick and turn and not server.ours:
                    continue
                seen = crowd(server, asked[:clients], lengths[clients])
                measured.setdefault((server.name, clients), []).append(seen)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter answers, fewer rounds; under 50 s")
    options = parser.parse_args()
    quick = options.quick
    lengths = QUICK if quick else dict.fromkeys(CLIENTS, 64)
    with threads(2), tempfile.TemporaryDirectory() as scratch:
        policy = target()
        draft = drafter(policy, "dspark")
        began = time.perf_counter()
        asked = openings(max(CLIENTS))
        cost = Path(scratch) / "cost.json"
        profile(
            policy, ModelSpeculator(draft), tokens=SHAPES if quick else [2**k for k in range(10)],
            requests=(1, 4, 16, 64) if quick else [2**k for k in range(7)], max_ratio=4.0,
            repeats=2 if quick else 3, sweeps=1 if quick else 9, context=32 if quick else 64,
        ).save(cost)  # fmt: skip
        with servers(path(TARGET), drafter_folder(policy, "dspark"), cost, quick) as found:
            print(f"servers: {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
            measured = measure(found, asked, lengths, 1 if quick else 5, quick)
            drawn = {s.name: crowd(s, asked[:32], lengths[32], seeded=True) for s in found if s.ours}
        most = {count: max(n for n in CLIENTS if lengths[n] == count) for count in lengths.values()}
        known = {count: expected(policy, asked[:n], count, seeded=False) for count, n in most.items()}
        greedy = {clients: known[count] for clients, count in lengths.items()}
        seeded = expected(policy, asked[:32], lengths[32], seeded=True)
    report(measured, drawn, greedy, seeded, time.perf_counter() - began)


def report(
    measured: dict[tuple[str, int], list[Round]],
    drawn: dict[str, Round],
    greedy: dict[int, list[tuple[str, int]]],
    seeded: Sequence[tuple[str, int]],
    seconds: float,
) -> None:
    table = Table(
        "clients",
        "server",
        "tokens/s",
        "first token p50, p99 (ms)",
        "per token p50, p99 (ms)",
        "wrong",
        "lost",
    )
    speed: dict[tuple[str, int], float] = {}
    waits: dict[str, float] = {}
    bad = {"ours": [0, 0], "theirs": [0, 0]}
    for (name, clients), rounds in measured.items():
        tokens = sum(greedy[clients][i][1] for i in range(clients))
        speed[name, clients] = float(np.median([tokens / item.seconds for item in rounds]))
        first = np.array([a.first for item in rounds for a in item.answers if a.error is None] or [np.nan])
        gaps = np.array([a.gap for item in rounds for a in item.answers if a.error is None] or [np.nan])
        figures = [
            f"{np.quantile(v, 0.5) * 1e3:.1f}, {np.quantile(v, 0.99) * 1e3:.1f}" for v in (first, gaps)
        ]
        counts = np.sum([checked(item, greedy[clients]) for item in rounds], axis=0).tolist()
        whose = "ours" if name.startswith("refork") else "theirs"
        bad[whose] = [a + b for a, b in zip(bad[whose], counts, strict=True)]
        if name == "refork + dspark":
            waits[str(clients)] = round(float(np.quantile(first, 0.99)) * 1e3, 1)
        table.add_row(str(clients), name, f"{speed[name, clients]:.0f}", *figures, *(str(c) for c in counts))
    for name, seen in drawn.items():
        counts = list(checked(seen, seeded))
        bad["ours"] = [a + b for a, b in zip(bad["ours"], counts, strict=True)]
        rate = sum(right[1] for right in seeded) / seen.seconds
        table.add_row("32", f"{name}, seeds", f"{rate:.0f}", "", "", *(str(c) for c in counts))
    Console(width=130).print(table)
    ratios = {}
    for clients in CLIENTS:
        theirs = max(v for (name, n), v in speed.items() if n == clients and not name.startswith("refork"))
        ratios[clients] = speed["refork + dspark", clients] / theirs
    plain = {n: speed["refork + dspark", n] / speed["refork", n] for n in CLIENTS}
    print("times the faster transformers server:", {n: round(v, 2) for n, v in ratios.items()})
    print("times Refork's server without a drafter:", {n: round(v, 2) for n, v in plain.items()})
    print(f"transformers' own answers: wrong {bad['theirs'][0]}, lost {bad['theirs'][1]}")
    print(f"{seconds:.0f} s, load {os.getloadavg()[0]:.1f}")
    print(
        json.dumps(
            {
                "wrong": bad["ours"][0],
                "lost": bad["ours"][1],
                "throughput_vs_transformers_serve": round(min(ratios.values()), 2),
                "p99_ttft_ms": waits,
            }
        )
    )


if __name__ == "__main__":
    main()
