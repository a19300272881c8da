"""Are draws from a server draws of the distribution? Three tokens' joint distribution against enumeration.

The server has three tokens and a generator for each request, begun with its seed, as vLLM has; so two calls
of one draw that were sent the same seed would share their noise. Every case that takes more than one call
is drawn: bans, an excluded first token, forced tokens, penalties inside a turn, filters, each at the first,
second and third turn, and three turns after each other. Draws go through the policy's own calls in this
process, JSON there and back; some of each case are drawn over HTTP too, and must be the same tokens.
``max_tv`` is the largest total variation distance of a case; ``noise`` is what an exact sampler shows on
average at this number of draws, for the same case. ``seed_reuse`` counts seeds that were sent for two
different addresses (draw, turn, call).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parts.seeded_server import TOKENS, InProcess, enumerated, serving
from refork.errors import CannotDo
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.remote import RemotePolicy
from refork.policies.remote.draw import Asker
from refork.policies.remote.probe import ServerAbilities
from refork.sampling.grammar import Grammar
from refork.sampling.noise import NoiseKey
from refork.types import token_array

LENGTH = 3
PROMPT = [0, 2, 1, 1]
#: Settings, the token that is excluded first, how many tokens of the turn were said before, whether the
#: server obeys logit_bias.
CASES: dict[str, tuple[Sampling, int | None, int, bool]] = {
    "plain": (Sampling(), None, 0, True),
    "ban": (Sampling(banned=(1,)), None, 0, True),
    "ban, unheard": (Sampling(banned=(1,)), None, 0, False),
    "ban first": (Sampling(banned_first=(1,)), None, 0, True),
    "ban first, unheard": (Sampling(banned_first=(1,)), None, 0, False),
    "exclude first": (Sampling(), 1, 0, True),
    "exclude first, unheard": (Sampling(), 1, 0, False),
    "exclude first, hot top-p": (Sampling(temperature=1.5, top_p=0.8), 2, 0, True),
    "forced": (Sampling(forced=(2,)), None, 0, True),
    "forced, ban first": (Sampling(forced=(2,), banned_first=(0,)), None, 0, True),
    "penalties": (Sampling(repetition_penalty=1.5, presence_penalty=0.8), None, 0, True),
    "penalties in a turn": (Sampling(frequency_penalty=-0.7, presence_penalty=1.2), None, 2, True),
    "penalties, ban first": (
        Sampling(frequency_penalty=0.6, presence_penalty=-1.1, banned_first=(0,)),
        None,
        1,
        True,
    ),
    "min-p and top-k, ban": (Sampling(temperature=1.3, min_p=0.2, top_k=2, banned=(0,)), None, 0, True),
}
ABLE = ServerAbilities(tokens=True, logprobs=True, logprob_kind="t1", scores=True, kind="vLLM")


def requests(case: str, turn: int, draws: range) -> list[Request]:
    """The requests of a case at a turn, whose context is one token longer for every turn before."""
    _, exclude, said, _ = CASES[case]
    tokens = token_array(PROMPT + [turn % TOKENS] * turn)
    return [Request(tokens, NoiseKey(11, 5, d, turn), exclude_first=exclude, generated=said) for d in draws]


def noise_of(law: NDArray[np.float64], draws: int) -> float:
    """The mean total variation distance of so many draws of a law from it, up to terms of order 1 / draws."""
    return float(np.sqrt(law * (1 - law) / (2 * np.pi * draws)).sum())


def reused(asked: list[tuple[Any, int]]) -> int:
    """Seeds that came for more than one address."""
    held: dict[int, Any] = {}
    return sum(held.setdefault(seed, address) != address for address, seed in asked)


def measure(case: str, turn: int, draws: int) -> dict[str, Any]:
    """Total variation distance of a case at a turn, its expected noise, and every seed with its address."""
    settings, exclude, said, biased = CASES[case]
    settings = settings.but(max_tokens=LENGTH)
    server = InProcess(biased)
    able = (
        ABLE
        if biased
        else ServerAbilities(**{**{f: getattr(ABLE, f) for f in ABLE.__slots__}, "bias": False})
    )
    asker = Asker(server, able, None, None)  # type: ignore[arg-type]
    seen = np.zeros([TOKENS] * LENGTH)
    asked: list[tuple[Any, int]] = []
    for number, request in enumerate(requests(case, turn, range(draws))):
        before = len(server.seeds)
        seen[tuple(asker.tokens(number, request, settings).ids)] += 1
        asked += [((number, turn, call), seed) for call, seed in enumerate(server.seeds[before:])]
    prefix = [int(t) for t in requests(case, turn, range(1))[0].tokens]
    cut = len(prefix) - said
    distribution = enumerated(prefix[:cut], prefix[cut:], settings, LENGTH, exclude)
    return {
        "tv": float(np.abs(seen / draws - distribution).sum() / 2),
        "noise": noise_of(distribution, draws),
        "calls": len(asked) / draws,
        "reused": reused(asked),
        "seeds": {seed: address for address, seed in asked},
    }


def three_turns(draws: int) -> dict[str, Any]:
    """The joint distribution of one token of each of three turns, each with its first token excluded."""
    server = InProcess(True)
    asker = Asker(server, ABLE, None, None)  # type: ignore[arg-type]
    distribution = np.zeros([TOKENS] * LENGTH)
    seen, settings = np.zeros_like(distribution), Sampling(max_tokens=1)
    for said in np.ndindex(*distribution.shape):
        parts = [enumerated([*PROMPT, *said[:t]], [], settings, 1, exclude=t)[said[t]] for t in range(LENGTH)]
        distribution[said] = np.prod(parts)
    asked: list[tuple[Any, int]] = []
    for draw in range(draws):
        said = list[int]()
        for turn in range(LENGTH):
            request = Request(token_array(PROMPT + said), NoiseKey(11, 5, draw, turn), exclude_first=turn)
            said += asker.tokens(draw, request, settings).ids
        seen[tuple(said)] += 1
    asked = [((i,), seed) for i, seed in enumerate(server.seeds)]
    tv = float(np.abs(seen / draws - distribution).sum() / 2)
    return {
        "tv": tv,
        "noise": noise_of(distribution, draws),
        "calls": len(asked) / draws,
        "reused": reused(asked),
    }


def over_http(case: str, draws: int) -> int:
    """How many draws over HTTP are not those of this process, of all turns of a case."""
    settings, _, _, biased = CASES[case]
    settings = settings.but(max_tokens=LENGTH)
    with serving(biased) as url:
        policy = RemotePolicy(url, "three", concurrency=2)
        able = policy.abilities
        if (able.bias, able.paired, able.kind) != (biased, True, "vLLM"):
            raise RuntimeError(f"the probe found {able}")
        asker = Asker(InProcess(biased), able, None, None)  # type: ignore[arg-type]
        differ = 0
        for turn in range(3):
            asked = requests(case, turn, range(draws))
            near = [asker.tokens(i, request, settings).ids for i, request in enumerate(asked)]
            far = [one.tokens.tolist() for one in sample_all(policy, asked, settings)]
            differ += sum(a != b for a, b in zip(near, far, strict=True))
        policy.close()
    return differ


def sent_under_a_grammar() -> int:
    """How many completions a draw under a grammar sends: it is refused before any."""
    with serving(True) as url:
        policy = RemotePolicy(url, "three", concurrency=1)
        _ = policy.card
        sent: Counter[str] = Counter()
        policy._endpoint.completion = lambda *_, **__: sent.update(["sent"])  # type: ignore[method-assign]
        try:
            sample_all(policy, requests("plain", 0, range(2)), Sampling(grammar=Grammar.regex("a+")))
        except CannotDo as error:
            print(f"under a grammar: {error.what}")
        else:
            raise RuntimeError("a grammar was not refused")
        policy.close()
    return sum(sent.values())


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    parser.add_argument("--draws", type=int, help="of each case and turn")
    options = parser.parse_args()
    draws = options.draws or (12_000 if options.quick else 100_000)
    # In short, each case at one of the turns.
    places = [(c, t) for i, c in enumerate(CASES) for t in range(3) if not options.quick or t == (i + 2) % 3]
    started = time.monotonic()
    with ProcessPoolExecutor(max_workers=2) as pool:
        waiting = {place: pool.submit(measure, *place, draws) for place in places}
        turns = pool.submit(three_turns, draws)
        wire = {case: pool.submit(over_http, case, 20 if options.quick else 200) for case in CASES}
        rows = {name: future.result() for name, future in waiting.items()}
        differ = {case: future.result() for case, future in wire.items()}
        every = turns.result()
    print("case                      turn      tv   noise  calls  over HTTP")
    for (case, turn), row in rows.items():
        figures = f"{row['tv']:7.4f} {row['noise']:7.4f} {row['calls']:6.2f}"
        print(f"{case:25s} {turn + 1:4d} {figures}  {differ[case]} differ")
    print(f"{'three turns':25s}  all {every['tv']:7.4f} {every['noise']:7.4f} {every['calls']:6.2f}")
    # Seeds of one case at several turns must differ too; cases are arms of each other, and share theirs.
    across = 0
    for case in CASES:
        both = [
            item for turn in range(3) if (case, turn) in rows for item in rows[case, turn]["seeds"].items()
        ]
        across += reused([(address, seed) for seed, address in both])
    found = [*rows.values(), every]
    worst = max(found, key=lambda row: row["tv"])
    print(f"{draws} draws of each case and turn, {time.monotonic() - started:.0f} s")
    print(
        json.dumps(
            {
                "max_tv": round(worst["tv"], 5),
                "noise": round(worst["noise"], 5),
                "max_over_noise": round(max(row["tv"] / row["noise"] for row in found), 3),
                "seed_reuse": sum(row["reused"] for row in found) + across,
                "differ_over_http": sum(differ.values()),
                "sent_under_a_grammar": sent_under_a_grammar(),
                "cases": len(CASES) + 1,
                "draws": draws,
            }
        )
    )


if __name__ == "__main__":
    main()
