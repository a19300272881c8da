"""Planted agents whose law is known: how often each answer is wrong, what loses a run, and which step did.

A run has turns; each answer is right or wrong. A turn that reads an earlier one repeats its mistake with a
chance of its own. A run is lost where all turns of one of some groups are wrong, and else with the chance
that the program fails by itself. So the chance of success after any answers is a finite sum.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from parts.blame_agent import MODEL

KINDS: Final = ("single", "conjunction", "echo", "recovered", "null")
#: A step is to blame where the chance of success falls by as much over it and never comes back.
FALL: Final = 0.1
Json = dict[str, Any]


@dataclass(frozen=True)
class Plant:
    """One planted agent and the answers of its recorded run.

    ``errs``: chance that a turn's answer is wrong. ``reads``: by turn, the earlier turn whose mistake it
    repeats, and the chance of that. ``lost_by``: groups of turns. ``unsaved``: chance that the program fails
    by itself. ``recorded``: which of the recorded answers are wrong.
    """

    name: str
    kind: str
    errs: tuple[float, ...]
    reads: dict[int, tuple[int, float]]
    lost_by: tuple[tuple[int, ...], ...]
    unsaved: float
    recorded: tuple[bool, ...]
    orders: Json = field(compare=False)

    def chance_wrong(self, before: Sequence[bool]) -> float:
        """Chance that the next answer is wrong, by which answers before it were."""
        turn = len(before)
        if turn in self.reads:
            read, repeats = self.reads[turn]
            if before[read]:
                return repeats
        return self.errs[turn]

    def value(self, before: Sequence[bool]) -> float:
        """Chance of success after some answers, exact."""
        if len(before) == len(self.errs):
            lost = any(all(before[turn] for turn in group) for group in self.lost_by)
            return 0.0 if lost else 1.0 - self.unsaved
        wrong = self.chance_wrong(before)
        return wrong * self.value([*before, True]) + (1.0 - wrong) * self.value([*before, False])

    def values(self) -> list[float]:
        """The value of the recorded run before every turn and at its end."""
        return [self.value(self.recorded[:turn]) for turn in range(len(self.errs) + 1)]

    def blamed(self) -> frozenset[int]:
        """The steps at which the value truly falls, for good: what is right to blame."""
        values = self.values()
        return frozenset(
            turn for turn in range(len(self.errs)) if values[turn] - max(values[turn + 1 :]) >= FALL
        )

    @property
    def steps(self) -> int:
        """Exchanges of the recorded run: a turn each, and the one in which the model says that it is done."""
        return len(self.errs) + 1


def plant(kind: str, seed: int) -> Plant:
    """The planted agent of a kind and a seed. Its recorded answers are drawn from its law, given its kind."""
    rng = random.Random(f"{kind}/{seed}")
    turns = rng.randint(5, 8)
    # Mistakes that cost nothing stand between those that do.
    errs = [rng.choice((0.0, rng.uniform(0.05, 0.5))) for _ in range(turns)]
    unsaved = rng.choice((0.0, rng.uniform(0.02, 0.12)))
    reads: dict[int, tuple[int, float]] = {}
    lost_by: list[tuple[int, ...]] = []
    wrong: set[int] = set()
    right: set[int] = set()
    checks: set[int] = set()
    if kind == "single":
        grave = rng.sample(range(turns), rng.randint(1, 3))
        for turn in grave:
            errs[turn] = rng.uniform(0.05, 0.2)
        errs[grave[0]] = rng.uniform(0.15, 0.5)
        lost_by, wrong, right = [(turn,) for turn in grave], {grave[0]}, set(grave[1:])
    elif kind == "conjunction":
        both = tuple(sorted(rng.sample(range(turns), 2)))
        for turn in both:
            errs[turn] = rng.uniform(0.3, 0.6)
        lost_by, wrong = [both], set(both)
    elif kind == "echo":
        first, later = sorted(rng.sample(range(turns), 2))
        errs[first], errs[later] = rng.uniform(0.15, 0.5), rng.uniform(0.0, 0.1)
        reads[later] = (first, rng.uniform(0.92, 1.0))
        lost_by, wrong = [(later,)], {first, later}
    elif kind == "recovered":
        three = sorted(rng.sample(range(turns), 3))
        # The mistake that stays is made before the other one or after its repair.
        first, repair, stays = three if rng.random() < 0.7 else (three[1], three[2], three[0])
        errs[first], errs[repair], errs[stays] = rng.uniform(0.3, 0.6), 0.0, rng.uniform(0.15, 0.5)
        reads[repair] = (first, rng.uniform(0.1, 0.6))
        lost_by, wrong, right, checks = [(repair,), (stays,)], {first, stays}, {repair}, {repair}
    else:
        unsaved = rng.uniform(0.3, 0.7)
    recorded: list[bool] = []
    for turn in range(turns):
        chance = errs[turn]
        if turn in reads and recorded[reads[turn][0]]:
            chance = reads[turn][1]
        recorded.append(turn in wrong or (turn not in right and rng.random() < chance))
    return Plant(
        f"{kind}-{seed}", kind, tuple(errs), reads, tuple(lost_by), unsaved, tuple(recorded),
        _orders(rng, turns, reads, checks, lost_by, unsaved),
    )  # fmt: skip


def _orders(
    rng: random.Random,
    turns: int,
    reads: dict[int, tuple[int, float]],
    checks: set[int],
    lost_by: Sequence[tuple[int, ...]],
    unsaved: float,
) -> Json:
    """What the program is given: texts, right totals, and how it grades itself."""
    texts, right = [], []
    for turn in range(turns):
        pieces, price = rng.randint(11, 49), rng.randint(11, 99)
        if turn in checks:
            read = reads[turn][0]
            right.append(right[read])
            texts.append(f"Order {turn}: check the total of order {read}, and enter it once more.")
        elif turn in reads:
            read = reads[turn][0]
            right.append(right[read] + price)
            texts.append(f"Order {turn}: as order {read}, and {price} more.")
        else:
            right.append(pieces * price)
            texts.append(f"Order {turn}: {pieces} pieces at {price}.")
    return {"texts": texts, "right": right, "lost_by": [list(g) for g in lost_by], "unsaved": unsaved}


class Provider:
    """A provider on this machine that answers by the agents' laws: ``/AGENT/WHO/v1/messages``.

    The n-th time that somebody asks the same, the answer is the same whoever asks: it is drawn from the
    request's own noise. Whom it answers is counted. ``record*`` gets the answers of the recorded run.
    """

    def __init__(self, plants: Sequence[Plant]) -> None:
        self.plants = {one.name: one for one in plants}
        self.asked: Counter[tuple[str, str]] = Counter()
        self._times: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def answer(self, name: str, who: str, body: Json) -> Json:
        """The answer to one request."""
        agent = self.plants[name]
        told = json.dumps(body["messages"], sort_keys=True)
        digest = hashlib.sha256(told.encode()).hexdigest()
        with self._lock:
            self.asked[name, who] += 1
            times = self._times[name, who, digest]
            self._times[name, who, digest] += 1
        entered = [
            part["input"]["total"]
            for message in body["messages"]
            if message["role"] == "assistant"
            for part in message["content"]
            if part["type"] == "tool_use"
        ]
        said = self._said(agent, who, entered, random.Random(f"{name}/{digest}/{times}"))
        called = isinstance(said, dict)
        part = (
            {"type": "tool_use", "id": f"call_{len(entered)}", "name": "enter", "input": said}
            if called
            else {"type": "text", "text": said}
        )
        return {
            "id": f"msg_{digest[:12]}_{times}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [part],
            "stop_reason": "tool_use" if called else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": len(told) // 4, "output_tokens": 12},
        }

    def _said(self, agent: Plant, who: str, entered: Sequence[int], rng: random.Random) -> Json | str:
        turn, right = len(entered), agent.orders["right"]
        if turn >= len(right):
            return "done"
        wrong = [total != good for total, good in zip(entered, right, strict=False)]
        errs = agent.recorded[turn] if who.startswith("record") else rng.random() < agent.chance_wrong(wrong)
        if not errs:
            return {"turn": turn, "total": right[turn]}
        read = agent.reads.get(turn, (None, 0.0))[0]
        if read is not None and wrong[read]:
            # The mistake itself is carried on.
            return {"turn": turn, "total": right[turn] + entered[read] - right[read]}
        return {"turn": turn, "total": right[turn] + rng.choice((-100, -10, -1, 1, 10, 100))}

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve while inside; gives the address."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                _, name, who, *_ = self.path.split("/")
                data = json.dumps(provider.answer(name, who, body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing is said of requests."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
