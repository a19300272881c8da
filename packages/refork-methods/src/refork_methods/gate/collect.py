"""Calibration records from live work: chains of candidates, every critic and the oracle on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from refork.errors import BadInput, ServerError
from refork.jsonl import json_objects
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.gate.live import Opened, Told, Verdict
from refork_methods.gate.model import GENERATE, VERIFY, Unit
from refork_methods.gate.prices import Rates
from refork_methods.gate.readers.jsonl import parse_record, record_line, write_jsonl
from refork_methods.gate.records import Record

C = TypeVar("C")


def collect_records(
    instances: Mapping[str, Callable[[int], Opened[C]]],
    digest: Callable[[C], str],
    *,
    draws: int = 1,
    steps: int = 3,
    known: Iterable[Record] = (),
    keep: Callable[[Record], None] | None = None,
    failed: Callable[[ServerError], None] | None = None,
    progress: Progress = silent,
) -> list[Record]:
    """Records of ``draws`` chains of ``steps`` candidates for each instance.

    An instance gives, for a draw's number, its writer, critics and oracle. Every critic sees every candidate,
    and the writer is told all verdicts before it refines; an episode tells it only what was bought, so the
    kernel is that of a well-informed writer. ``known`` records are not made again where a whole chain of them
    is there; ``keep`` gets each record as it is made. A writer that fails ends its chain, and ``failed`` is
    told of what.

    Raises: BadInput for fewer than one draw or step; ServerError where no writer gave anything.
    """
    if min(draws, steps) < 1:
        raise BadInput(f"{draws} draws of {steps} steps", hint="at least 1 of each")
    done: dict[tuple[str, str], list[Record]] = {}
    for record in known:
        done.setdefault((record.instance, record.candidate), []).append(record)
    records: list[Record] = []
    errors: list[ServerError] = []
    kept, told = keep or _nobody, failed or _nobody
    places = [(instance, draw) for instance in instances for draw in range(draws)]
    for count, (instance, draw) in enumerate(places, 1):
        chain = done.get((instance, str(draw)), [])
        if len(chain) < steps:
            chain, error = _chain((instance, str(draw)), instances[instance](draw), digest, steps)
            for record in chain:
                kept(record)
            errors += [] if error is None else [error]
        records += chain
        cut = f"{len(errors)} chains ended early: {errors[-1].what}" if errors else None
        progress("calibration", count, len(places), waiting=cut)
    if errors and not records:
        raise errors[0]
    for error in errors:
        told(error)
    return records


def collect_file(
    path: Path,
    instances: Mapping[str, Callable[[int], Opened[C]]],
    digest: Callable[[C], str],
    *,
    source: str,
    unit: Unit = "utility",
    draws: int = 1,
    steps: int = 3,
    failed: Callable[[ServerError], None] | None = None,
    progress: Progress = silent,
) -> list[Record]:
    """:func:`collect_records` into JSON lines with costs in ``unit``; what is in the file is not made again.

    Chains that were cut short, by Ctrl-C or by a writer that failed, are made anew; chains of other instances
    stay in the file. Every line names its ``source``, so records of two writers cannot get into one file.

    Raises: BadInput for a file of another source, or one that holds no records; ServerError as there.
    """
    kept = _whole_chains(path, source, unit, steps) if path.exists() else []
    write_jsonl(path, kept, unit, source)

    def keep(record: Record) -> None:
        with path.open("a", encoding="utf-8") as out:
            out.write(record_line(record, unit, source))

    return collect_records(
        instances, digest, draws=draws, steps=steps, known=kept, keep=keep, failed=failed, progress=progress
    )


def collected_json(records: Sequence[Record]) -> Json:
    """How many candidates of how many instances there are, and how many are right."""
    return {
        "candidates": len(records),
        "instances": len({record.instance for record in records}),
        "right": sum(record.right is True for record in records),
        "unknown": sum(record.right is None for record in records),
    }


def _nobody(told: object) -> None:
    """Nobody listens."""


def _whole_chains(path: Path, source: str, unit: Unit, steps: int) -> list[Record]:
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]  # a line that was being written when the power went is not one
    chains: dict[tuple[str, str], list[Record]] = {}
    for place, body in json_objects(whole.split("\n"), str(path)):
        if body.get("source") != source:
            raise BadInput(
                f"these records are of another source: {body.get('source')!r}, not {source!r}",
                where=place,
                hint="collect into another file; refork gate fit takes several",
            )
        record = parse_record(body, {}, Rates(unit), place)
        chains.setdefault((record.instance, record.candidate), []).append(record)
    return [record for chain in chains.values() if len(chain) >= steps for record in chain]


def _chain(
    place: tuple[str, str],
    callables: Opened[C],
    digest: Callable[[C], str],
    steps: int,
) -> tuple[list[Record], ServerError | None]:
    """A chain's records, and what its writer failed of where it did."""
    write, critics, verify = callables
    records: list[Record] = []
    candidate: C | None = None
    told: tuple[Told, ...] = ()
    for step in range(steps):
        try:
            candidate, cost = write(candidate, told)
        except ServerError as error:
            return records, error
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
    return records, None


def _missing(truth: Verdict) -> str | None:
    return None if truth.passed is not None else (truth.reason or None)
