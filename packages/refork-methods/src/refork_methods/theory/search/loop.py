"""The closed loop. Every step is recorded before it is used: a stopped search goes on as if it never was.

Source: arXiv:2606.26448 (code) for the round; designs that cannot tell the theories apart are refused, never
used for want of better ones, and a role that fails is recorded and does not end the run: both ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, final

import numpy as np

from refork.errors import UserError
from refork.plain import content_hash
from refork.progress import Progress, silent
from refork.sandbox import Sandbox
from refork.types import Json
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.gate import GateResult, gate
from refork_methods.theory.grammar import Domain
from refork_methods.theory.metrics import measure
from refork_methods.theory.pool import SEEDS, MetricObservation, Pool, Round, Verdict, next_label
from refork_methods.theory.sandboxed import SandboxedTheory, check_theory
from refork_methods.theory.search.observed import Observed, Predicted, failed, loss, observed, predict
from refork_methods.theory.search.participants import Participants
from refork_methods.theory.search.record import Record, Stopped
from refork_methods.theory.search.scientist import Candidate, Designed, Fault, Scientist, View
from refork_methods.theory.search.settings import TheorySettings
from refork_methods.theory.search.spec import TheorySpec
from refork_methods.theory.search.statistic import metric_of, read_statistic
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation, Trials

#: ``done``: all rounds; ``undecided``: no design was admitted; ``no verdict``, ``no successor``: a role
#: failed; ``stopped``: by the user.
State: TypeAlias = Literal["done", "undecided", "no verdict", "no successor", "stopped"]


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended: ``best`` is the theory of least loss over all observations, None without one."""

    state: State
    pool: Pool
    best: str | None
    losses: dict[str, float]
    why: str = ""


@final
class TheorySearch:
    """One search. ``record`` holds what an earlier run of the same search did. Run it once."""

    def __init__(
        self,
        domain: Domain,
        seeds: tuple[TheorySpec, TheorySpec],
        participants: Participants,
        scientist: Scientist,
        settings: TheorySettings,
        sandbox: Sandbox,
        record: Record | None = None,
    ) -> None:
        self.domain, self.settings, self.sandbox = domain, settings, sandbox
        self.participants, self.scientist = participants, scientist
        self.record = Record() if record is None else record  # an empty one is false
        self.theories: dict[str, TheorySpec] = dict(zip(SEEDS, seeds, strict=True))
        self.parents: dict[str, str | None] = dict.fromkeys(SEEDS)
        self.slots: tuple[str, str] = SEEDS
        self.observed: list[Observed] = []
        self.predicted: dict[str, list[Predicted]] = {label: [] for label in SEEDS}
        self._rounds: list[Round] = []
        self._spent: set[str] = set()

    def facts(self) -> Json:
        """What a resumed search must share with the one that began; the number of rounds may grow."""
        told = self.settings.to_json()
        del told["rounds"]
        return {
            "format": 1,
            "domain": self.domain.name,
            "participants": self.participants.name,
            "scientist": self.scientist.name,
            "seeds": [self.theories[label].to_json() for label in SEEDS],
            "settings": told,
        }

    @property
    def pool(self) -> Pool:
        """Rounds as far as they went."""
        return Pool(tuple(self._rounds))

    def losses(self) -> dict[str, float]:
        """Loss of every theory over all observations; empty without one."""
        if not self.observed:
            return {}
        return {label: self._loss(rows) for label, rows in self.predicted.items()}

    def run(self, progress: Progress = silent, stopped: Callable[[], bool] = lambda: False) -> Outcome:
        """Search until the rounds are done, or something forbids to go on.

        Raises: Mismatch where the record is of another search; BadInput where a seed's own code fails.
        """
        self.record.stopped = stopped
        try:
            self.record.agree("start", self.facts())
            self.record.once("seeds", self._check_seeds)
            for number in range(1, self.settings.rounds + 1):
                progress("rounds", number - 1, self.settings.rounds)
                state, why = self._round(number, progress)
                if state != "done":
                    return self._outcome(state, why)
            progress("rounds", self.settings.rounds, self.settings.rounds)
            return self._outcome("done", "")
        except Stopped:
            return self._outcome("stopped", "")

    def _outcome(self, state: State, why: str) -> Outcome:
        losses = self.losses()
        best = min(losses, key=lambda label: losses[label]) if losses else None
        return Outcome(state, self.pool, best, losses, why)

    def _check_seeds(self) -> Json:
        """Run the seeds' own code once."""
        design = self.domain.design(np.random.default_rng(self.settings.seed))
        for label in SEEDS:
            chooser = self.theories[label].chooser(label, self.domain, self.sandbox)
            if isinstance(chooser, SandboxedTheory):
                check_theory(chooser, design, self.settings.seed)
        return {"checked": list(SEEDS)}

    def _round(self, number: int, progress: Progress) -> tuple[State, str]:
        before = len(self.observed)
        for side in (1, 2):
            progress(
                "rounds", number - 1, self.settings.rounds, waiting=f"round {number}: designs, side {side}"
            )
            self._side(number, side)
        if len(self.observed) == before:
            return "undecided", f"round {number}: no design told {self.slots[0]} from {self.slots[1]}"
        self._rounds.append(Round(tuple(self._recorded(one) for one in self.observed[before:])))
        ruled = self.record.once(f"{number}/verdict", lambda: self._judge(number))
        if "fault" in ruled:
            return "no verdict", ruled["fault"]
        verdict = Verdict(ruled["ruling"], ruled["target"])
        progress("rounds", number - 1, self.settings.rounds, waiting=f"round {number}: successor")
        best = self._revise(number, verdict)
        if best is None:
            return "no successor", f"round {number}: nothing that was written could be run"
        self._admit(number, verdict, best)
        return "done", ""

    # Observations

    def _side(self, number: int, side: int) -> None:
        """One side's observation, if one of its designs is admitted."""
        refused: list[str] = []
        for attempt in range(self.settings.designs):
            key = f"{number}/{side}/{attempt}"
            told = self.record.once(f"{key}/design", partial(self._propose, number, side, attempt, refused))
            if "fault" in told:
                refused.append(told["fault"])
                continue
            gated = self.record.once(
                f"{key}/gate", partial(self._gate, number, side, attempt, told, self.slots)
            )
            if gated["accepted"] is None:
                refused.append("; ".join(f"{one['statistic']}: {one['reason']}" for one in gated["results"]))
                continue
            self._observe(number, side, told, int(gated["accepted"]))
            return

    def _propose(self, number: int, side: int, attempt: int, refused: Sequence[str]) -> Json:
        found = self.scientist.propose(self._view(number, side, attempt), side, refused)
        if isinstance(found, Fault):
            return {"fault": found.why, **self._asked()}
        return {
            **self._asked(),
            "experiment": found.experiment.to_json(),
            "kept": self.participants.remaining_people(found.experiment, self.settings.people),
            "statistics": [one.model_dump() for one in found.statistics],
            "why": found.why,
        }

    def _gate(self, number: int, side: int, attempt: int, told: Json, slots: tuple[str, str]) -> Json:
        """Whether the people who will be kept could tell the theories apart, statistic by statistic."""
        design = self.designed(told)
        kept = told["kept"]
        # A scientist may seed its own generator by the same key: the spawn key keeps the two streams apart.
        seeds = np.random.SeedSequence(self._key(number, side, attempt), spawn_key=(1,)).generate_state(2)
        labels = (slots[side - 1], slots[2 - side])
        results: list[Json] = []
        try:
            runs = [
                simulate(self._chooser(label), design.experiment, self.settings.simulated, int(seed))
                for label, seed in zip(labels, seeds, strict=True)
            ]
        except UserError as error:
            return {"accepted": None, "kept": kept, "results": [_failed("simulation", error)]}
        for place, one in enumerate(design.statistics[: self.settings.statistics]):
            try:
                metric = metric_of(one, design.experiment, self.sandbox)
                pair = [measure(metric, trials) for trials in runs]
            except UserError as error:
                results.append(_failed(getattr(one, "name", one.kind), error))
                continue
            found = gate(
                pair[0], pair[1], kept_people=kept, alpha=self.settings.alpha, attempts=self.settings.attempts
            )
            results.append(_gate_json(found))
            if found.accepted:
                return {"accepted": place, "kept": kept, "results": results}
        return {"accepted": None, "kept": kept, "results": results}

    def designed(self, report: Json) -> Designed:
        """A recorded design, read."""
        experiment = self.domain.read(report["experiment"], None)
        return Designed(experiment, tuple(read_statistic(one) for one in report["statistics"]), report["why"])

    def _observe(self, number: int, side: int, told: Json, place: int) -> None:
        """Ask people, score every theory on what they chose, and keep it; left out where it says nothing."""
        design, key = self.designed(told), f"{number}/{side}"
        # Before people are asked: a search that stops here must not offer the design again.
        self._spent.add(content_hash(told["experiment"]))
        seed = self._seed(number, side)
        answered = self.record.once(f"{key}/people", lambda: self._ask(design.experiment, seed))
        trials = Trials(*(np.asarray(answered[name]) for name in ("person", "stimulus", "response")))
        seen = Observation(f"round {number}, side {side}", design.experiment, trials)
        values = self.record.once(f"{key}/values", lambda: self._values(seen, design, place, seed))
        if "fault" in values:
            return
        self.observed.append(observed(seen, design.statistics[place], seed, self.sandbox))
        for label, rows in self.predicted.items():
            rows.append(Predicted.from_json(values["theories"][label]))

    def _ask(self, experiment: Experiment, seed: int) -> Json:
        trials = self.participants.answer(experiment, self.settings.people, seed)
        return {name: getattr(trials, name).tolist() for name in ("person", "stimulus", "response")}

    def _values(self, seen: Observation, design: Designed, place: int, seed: int) -> Json:
        try:
            one = observed(seen, design.statistics[place], seed, self.sandbox)
        except UserError as error:
            return {"fault": str(error)}
        told = {label: self._predict(label, one).to_json() for label in self.theories}
        return {"real": one.real, "people": len(seen.trials.people), "theories": told}

    def _predict(self, label: str, one: Observed) -> Predicted:
        try:
            return predict(self._chooser(label), one, self.settings)
        except UserError:
            # Admitted theories have run; on this design one fails.
            return failed(one)

    def _recorded(self, one: Observed) -> MetricObservation:
        place = self.observed.index(one)
        values = {label: rows[place].value for label, rows in self.predicted.items()}
        return MetricObservation(one.name, one.metric.name, one.real, values)

    # Theories

    def _judge(self, number: int) -> Json:
        found = self.scientist.judge(self._view(number, 0, 0))
        if isinstance(found, Fault):
            return {"fault": found.why, **self._asked()}
        ruled = {"ruling": found.verdict.ruling, "target": found.verdict.target, "why": found.why}
        return ruled | self._asked()

    def _asked(self) -> Json:
        """What a role asked a model and was answered; nothing where it asked nobody."""
        said = self.scientist.transcript()
        return {"asked": said} if said else {}

    def _revise(self, number: int, verdict: Verdict) -> tuple[Candidate, list[Predicted]] | None:
        """Try successors, each from the best so far; the best of them, None where none could be run."""
        tried: list[Candidate] = []
        best: tuple[Candidate, list[Predicted]] | None = None
        for attempt in range(self.settings.tries):
            told = self.record.once(
                f"{number}/0/{attempt}/candidate", partial(self._try, number, attempt, verdict, tried, best)
            )
            # A scientist that has nothing better ends the tries, not the round.
            if "end" in told:
                break
            if "spec" not in told:
                continue
            one = Candidate(TheorySpec.from_json(told["spec"]), told["loss"], told["accepted"], told["why"])
            tried.append(one)
            if one.accepted:
                best = one, [Predicted.from_json(row) for row in told["predicted"]]
        return best

    def _try(
        self,
        number: int,
        attempt: int,
        verdict: Verdict,
        tried: Sequence[Candidate],
        best: tuple[Candidate, list[Predicted]] | None,
    ) -> Json:
        found = self.scientist.revise(self._view(number, 0, attempt), verdict, tried)
        if found is None:
            return {"end": True, **self._asked()}
        if isinstance(found, Fault):
            return {"fault": found.why, **self._asked()}
        body: Json = {"spec": found.to_json(), "loss": None, "accepted": False, "why": ""} | self._asked()
        try:
            chooser = found.chooser("candidate", self.domain, self.sandbox)
            if isinstance(chooser, SandboxedTheory):
                check_theory(chooser, self.observed[0].observation.experiment, self._seed(number, 0))
            rows = [predict(chooser, one, self.settings) for one in self.observed]
        except UserError as error:
            return body | {"why": str(error)}
        value = self._loss(rows)
        accepted = best is None or best[0].loss is None or value < best[0].loss
        return body | {"loss": value, "accepted": accepted, "predicted": [one.to_json() for one in rows]}

    def _admit(self, number: int, verdict: Verdict, found: tuple[Candidate, list[Predicted]]) -> None:
        old = self.slots[verdict.target - 1]
        label = next_label(list(self.theories), old, verdict.ruling)
        candidate, rows = found
        self.record.once(
            f"{number}/admitted",
            lambda: {"label": label, "parent": old, "spec": candidate.spec.to_json(), "loss": candidate.loss},
        )
        self.theories[label], self.parents[label] = candidate.spec, old
        self.predicted[label] = rows
        self.slots = (label, self.slots[1]) if verdict.target == 1 else (self.slots[0], label)
        # Every observation so far is filled in for the new theory.
        done: list[Round] = []
        places = iter(range(len(self.observed)))
        for one in self._rounds:
            filled = [
                MetricObservation(s.name, s.metric, s.real, {**s.values, label: rows[next(places)].value})
                for s in one.seen
            ]
            done.append(Round(tuple(filled), one.verdict))
        # Only now is the round finished: its verdict makes the label of the theory just filled in.
        done[-1] = Round(done[-1].seen, verdict)
        self._rounds = done

    def _loss(self, rows: Sequence[Predicted]) -> float:
        stored = [
            [of[place].value for of in self.predicted.values() if of[place].value is not None]
            for place in range(len(self.observed))
        ]
        known = [[value for value in one if value is not None] for one in stored]
        return loss(rows, self.observed, known, self.settings)

    # Reading

    def slots_before(self, number: int) -> tuple[str, str]:
        """Labels of the two theories that stood when a round began."""
        standings = self.pool.replay()
        return SEEDS if number == 1 else standings[number - 2].slots

    def record_keys(self, kind: str) -> list[str]:
        """Keys of all recorded steps of a kind."""
        return [key for key, _ in self.record.items() if key.rpartition("/")[2] == kind]

    def gate_again(self, number: int, side: int, attempt: int, report: Json) -> Json:
        """A gate as it comes out when it is simulated once more."""
        return self._gate(number, side, attempt, report, self.slots_before(number))

    # Keys

    def _view(self, number: int, side: int, attempt: int) -> View:
        offers = self.participants.offers
        if offers is not None:
            offers = tuple(one for one in offers if content_hash(one.to_json()) not in self._spent)
        return View(
            self.domain, self.settings, self.sandbox, dict(self.theories), self.slots, tuple(self.observed),
            {label: tuple(rows) for label, rows in self.predicted.items()}, self.losses(), offers,
            self._key(number, side, attempt),
        )  # fmt: skip

    def _chooser(self, label: str) -> Chooser:
        return self.theories[label].chooser(label, self.domain, self.sandbox)

    def _key(self, number: int, side: int, attempt: int) -> tuple[int, int, int, int]:
        return self.settings.seed, number, side, attempt

    def _seed(self, number: int, side: int) -> int:
        """The seed of an observation: of its people, and of every theory's simulation of it."""
        return int(np.random.SeedSequence((self.settings.seed, number, side)).generate_state(1)[0])


def _gate_json(found: GateResult) -> Json:
    return {
        "statistic": found.mine.metric, "accepted": found.accepted, "reason": found.reason, "p": found.p,
        "power": found.power, "needed": found.needed, "alpha": found.alpha,
    }  # fmt: skip


def _failed(name: str, error: UserError) -> Json:
    return {"statistic": name, "accepted": False, "reason": str(error), "p": None, "power": None,
            "needed": None, "alpha": None}  # fmt: skip
