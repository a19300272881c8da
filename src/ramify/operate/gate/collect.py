"""Calibration records from live work: chains of candidates, every critic and the oracle on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ramify.core.errors import BadInput, ServerError
from ramify.core.run.progress import Progress, silent
from ramify.operate.gate.live import Check, Told, Verdict, Writer
from ramify.operate.gate.model import GENERATE, VERIFY
from ramify.operate.gate.records import Record

C = TypeVar("C")


def collect_records(
    instances: Mapping[str, Callable[[int], tuple[Writer[C], Mapping[str, Check[C]], Check[C]]]],
    digest: Callable[[C], str],
    *,
    draws: int = 1,
    steps: int = 3,
    known: Iterable[Record] = (),
    keep: Callable[[Record], None] | None = None,
    progress: Progress = silent,
) -> list[Record]:
    """Records of ``draws`` chains of ``steps`` candidates for each instance.

    An instance gives, for a draw's number, its writer, critics and oracle. Every critic sees every candidate,
    and the writer is told all verdicts before it refines; an episode tells it only what was bought, so the
    kernel is that of a well-informed writer. ``known`` records are not made again where a whole chain of them
    is there; ``keep`` gets each record as it is made. A writer that fails ends its chain.

    Raises: BadInput for fewer than one draw or step.
    """
    if min(draws, steps) < 1:
        raise BadInput(f"{draws} draws of {steps} steps", hint="at least 1 of each")
    done: dict[tuple[str, str], list[Record]] = {}
    for record in known:
        done.setdefault((record.instance, record.candidate), []).append(record)
    records: list[Record] = []
    total, count = len(instances) * draws, 0
    for instance, open_draw in instances.items():
        for draw in range(draws):
            chain = done.get((instance, str(draw)), [])
            if len(chain) < steps:
                chain = _chain((instance, str(draw)), open_draw(draw), digest, steps)
                for record in chain:
                    if keep is not None:
                        keep(record)
            records += chain
            count += 1
            progress("calibration", count, total)
    return records


def _chain(
    place: tuple[str, str],
    callables: tuple[Writer[C], Mapping[str, Check[C]], Check[C]],
    digest: Callable[[C], str],
    steps: int,
) -> list[Record]:
    write, critics, verify = callables
    records: list[Record] = []
    candidate: C | None = None
    told: tuple[Told, ...] = ()
    for step in range(steps):
        try:
            candidate, cost = write(candidate, told)
        except ServerError:
            break
        verdicts = {name: check(candidate) for name, check in critics.items()}
        truth = verify(candidate)
        prices = {GENERATE: cost, VERIFY: truth.price} | {n: v.price for n, v in verdicts.items()}
        records.append(
            Record(
                *place,
                right=truth.passed,
                verdicts={name: verdict.passed for name, verdict in verdicts.items()},
                costs={name: price for name, price in prices.items() if price is not None},
                step=step,
                artifact=digest(candidate),
                missing=_missing(truth),
            )
        )
        told = tuple(Told(name, verdict) for name, verdict in verdicts.items())
    return records


def _missing(truth: Verdict) -> str | None:
    return None if truth.passed is not None else (truth.reason or None)
