"""The gate on live work: draw a candidate, ask critics, verify, refine or stop, by callables of your own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, final

from refork.errors import BadInput, ServerError
from refork.jsonl import json_objects
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.gate.evaluate import CAP
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices, Unit
from refork_methods.gate.policy import Policy, State, at_belief, rejected, start_of
from refork_methods.gate.policy import Verify as Ending
from refork_methods.gate.records import Rates, Record, parse_record, record_line, write_jsonl

#: Whatever a candidate is to the caller: a patch, a node of a tree, a file.
C = TypeVar("C")

Outcome: TypeAlias = Literal["verified", "refuted", "shipped", "stopped", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check said. ``passed`` None: it gave no verdict (it failed itself), which moves no belief.

    ``price`` is what this call really cost, in the unit of the prices; None: not measured.
    """

    passed: bool | None
    price: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CriticVerdict:
    """A critic's verdict on the candidate that is to be refined."""

    critic: str
    verdict: Verdict


class Writer(Protocol[C]):
    """Draws the first candidate (``previous`` None), or refines one given what its checks said."""

    def __call__(self, previous: C | None, feedback: Sequence[CriticVerdict]) -> tuple[C, float | None]:
        """The candidate, and what it really cost (None: not measured)."""
        ...


Check: TypeAlias = Callable[[C], Verdict]

#: What an episode works with: its writer, its critics by name, and the verifier.
Opened: TypeAlias = tuple[Writer[C], Mapping[str, Check[C]], Check[C]]


@dataclass(frozen=True, slots=True)
class Event(Generic[C]):
    """One step: the action, its candidate, the belief before and after, what it cost and said."""

    action: str
    candidate: C
    number: int
    before: float
    after: float
    price: float
    passed: bool | None
    why: str


@final
@dataclass(frozen=True, slots=True)
class LiveEpisode(Generic[C]):
    """How an episode went.

    ``utility`` is the reward minus what was spent after the first candidate, as a controller counts value;
    ``first`` is what that one cost. ``belief`` is the last one before any verification, ``candidate`` the
    last candidate. ``unknown`` outcomes (the verifier gave no verdict) earn nothing; leave them out of
    statistics, they are not wrong.
    """

    outcome: Outcome
    utility: float
    first: float
    belief: float
    candidate: C
    right: bool | None
    events: tuple[Event[C], ...]

    @property
    def spent(self) -> float:
        """All that was paid, the first candidate included."""
        return self.first + sum(event.price for event in self.events)


@dataclass(slots=True)
class _Play(Generic[C]):
    """The moving parts of one episode."""

    policy: Policy
    model: CriticModel
    prices: Prices
    candidate: C
    state: State
    measured: bool
    feedback: list[CriticVerdict] = field(default_factory=list)
    events: list[Event[C]] = field(default_factory=list)
    belief: float = 0.0

    def note(
        self, action: str, before: State, price: tuple[float | None, float], passed: bool | None, why: str
    ) -> None:
        real, stated = price
        paid = real if self.measured and real is not None else stated
        if not math.isfinite(paid) or paid < 0:
            raise BadInput(
                f"{action} says it cost {paid!r}", hint="a price is 0 or more; None if not measured"
            )
        self.events.append(
            Event(
                action, self.candidate, before.candidate, before.belief, self.state.belief, paid, passed, why
            )
        )

    def end(self, outcome: Outcome, earned: float, right: bool | None, first: float) -> LiveEpisode[C]:
        utility = earned - sum(event.price for event in self.events)
        return LiveEpisode(outcome, utility, first, self.belief, self.candidate, right, tuple(self.events))


def run_gate(
    policy: Policy,
    model: CriticModel,
    prices: Prices,
    write: Writer[C],
    critics: Mapping[str, Check[C]],
    verify: Check[C],
    *,
    horizon: int,
    ending: Ending = "terminal",
    measured: bool = False,
    watch: Callable[[Event[C]], None] | None = None,
) -> LiveEpisode[C]:
    """Play one episode: what the policy chooses is really done, and its verdicts move the belief.

    A critic that gives no verdict is paid, is not asked again and moves no belief. ``measured``: pay what
    calls really cost where they say so, not the stated prices. ``watch`` sees every event as it happens. What
    the callables raise passes through. An episode too long for any controller is stopped, as in a replay.

    Raises: BadInput for a critic of the model without a callable, or an action that is not open.
    """
    if missing := [name for name in model.names if name not in critics]:
        raise BadInput(
            f"no callable for critic {missing[0]!r}", hint="give one for every critic of the model"
        )
    candidate, cost = write(None, ())
    first = cost if measured and cost is not None else prices.generate
    play = _Play(policy, model, prices, candidate, start_of(policy, model), measured, belief=model.start)
    for _ in range(CAP):
        ended = _step(play, write, critics, verify, horizon, ending, first)
        if watch is not None and play.events:
            watch(play.events[-1])
        if ended is not None:
            return ended
    return play.end("stopped", 0.0, None, first)


def _step(
    play: _Play[C],
    write: Writer[C],
    critics: Mapping[str, Check[C]],
    verify: Check[C],
    horizon: int,
    ending: Ending,
    first: float,
) -> LiveEpisode[C] | None:
    """One action, done; the episode where it ended."""
    before, choice = play.state, play.policy.act(play.state)
    action, why = choice.action, choice.reason
    if action == STOP:
        play.note(STOP, before, (0.0, 0.0), None, why)
        return play.end("stopped", 0.0, None, first)
    if action == SHIP and play.prices.ship_loss is not None:
        # What is shipped unseen is judged by nobody here: the expected utility counts.
        b = before.belief
        play.note(SHIP, before, (0.0, 0.0), None, why)
        return play.end("shipped", b * play.prices.reward - (1 - b) * play.prices.ship_loss, None, first)
    if action == VERIFY:
        return _verified(play, verify(play.candidate), ending, why, first)
    if action == GENERATE:
        fresh, cost = write(play.candidate, tuple(play.feedback))
        play.state = play.policy.refine(before)
        # Verdicts are of one candidate: carried over, they would tell the writer of faults that are mended.
        play.candidate, play.feedback, play.belief = fresh, [], play.state.belief
        play.note(GENERATE, before, (cost, play.prices.generate), None, why)
        # Drawn and paid for, but beyond the horizon nothing is left to act on.
        last = before.candidate + 1 >= horizon
        return play.end("stopped", 0.0, None, first) if last else None
    if action not in play.model.names:
        raise BadInput(f"{play.policy.name} chose {action!r}, which is not open here")
    said = critics[action](play.candidate)
    play.feedback.append(CriticVerdict(action, said))
    if said.passed is None:
        play.state = _unanswered(play.policy, before, action)
    else:
        play.state = play.policy.update(before, action, said.passed)
        play.belief = play.state.belief
    charged = play.policy.charged
    stated = charged[action] if action in charged else play.model.critic(action).price
    play.note(action, before, (said.price, stated), said.passed, said.reason or why)
    return None


def _unanswered(policy: Policy, before: State, critic: str) -> State:
    """The state after a call without a verdict, as in a replay: a blind rule that waits for one goes on."""
    if policy.blind:
        return replace(policy.update(before, critic, True), belief=before.belief)
    return replace(before, used=before.used | {critic})


def _verified(play: _Play[C], said: Verdict, ending: Ending, why: str, first: float) -> LiveEpisode[C] | None:
    before = play.state
    if said.passed is not True:
        play.state = rejected(before) if said.passed is False else before
    else:
        play.state = at_belief(before, 1.0)
    play.note(VERIFY, before, (said.price, play.prices.verify), said.passed, said.reason or why)
    if said.passed is None:
        return play.end("unknown", 0.0, None, first)
    if said.passed:
        return play.end("verified", play.prices.reward, True, first)
    play.feedback.append(CriticVerdict(VERIFY, said))
    return None if ending == "retry" else play.end("refuted", 0.0, False, first)


# Calibration records from live work: chains of candidates, every critic and the oracle on each.


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
    # The file is cut to whole chains first, so that what is appended from here on never doubles a candidate.
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
    told: tuple[CriticVerdict, ...] = ()
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
        told = tuple(CriticVerdict(name, verdict) for name, verdict in verdicts.items())
    return records, None


def _missing(truth: Verdict) -> str | None:
    return None if truth.passed is not None else (truth.reason or None)
