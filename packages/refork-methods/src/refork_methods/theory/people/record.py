"""What a study's results say of each person, entry by entry: the one reading of both server and files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

import numpy as np

from refork.errors import BadInput
from refork.types import Json
from refork_methods.theory.experiment import Experiment, repeats
from refork_methods.theory.people.design import experiment_of
from refork_methods.theory.people.document import VERSION
from refork_methods.theory.quality import Session
from refork_methods.theory.trials import Trials

#: What one person's part in a study comes to.
Status: TypeAlias = Literal["going", "ended", "withdrawn"]


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """One choice: the pair's place in the person's order, the pair, the option (0: A, 1: B), how it was made.

    ``rt_ms``: milliseconds from when the pair was shown; ``by``: ``key`` or ``button``; ``away_ms``:
    milliseconds away from the page up to here.

    Raises: BadInput for a number that is none of these.
    """

    index: int
    stimulus: int
    response: int
    rt_ms: float
    by: str = "button"
    away_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in ("index", "stimulus", "response"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BadInput(f"{name} is {value!r}; it must be a whole number, 0 or more")
        if self.response > 1:
            raise BadInput(f"response is {self.response}; it must be 0 (A) or 1 (B)")
        if self.by not in ("key", "button"):
            raise BadInput(f"by is {self.by!r}; it must be key or button")
        for name in ("rt_ms", "away_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BadInput(f"{name} is {value!r}; it must be a number")
            if not (math.isfinite(value) and 0 <= value < 1e10):
                raise BadInput(f"{name} is {value!r}; it must be 0 or more")

    def same(self, other: Answer) -> bool:
        """Whether it is the same choice, sent again."""
        return (self.index, self.stimulus, self.response) == (other.index, other.stimulus, other.response)


@final
@dataclass(slots=True)
class Person:
    """One person's part. ``person`` and ``session`` are a recruiter's, sealed; None: nobody sent them."""

    id: str
    number: int
    order: tuple[int, ...]
    token: str = ""
    recruiter: str | None = None
    person: str | None = None
    session: str | None = None
    bot: tuple[str, ...] = ()
    code: str = ""
    began: float = 0.0
    texts: str = ""
    status: Status = "going"
    away_ms: float = 0.0
    answers: list[Answer] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether every pair was answered."""
        return len(self.answers) == len(self.order)

    def trials(self) -> Trials:
        """The choices. Raises BadInput where there are none."""
        columns = [(self.number, one.stimulus, one.response) for one in self.answers]
        table = np.asarray(columns, dtype=np.int64).reshape(-1, 3)
        return Trials(table[:, 0], table[:, 1], table[:, 2])

    def quality_session(self) -> Session:
        """What the rules of quality ask of a person."""
        times = [one.rt_ms for one in self.answers]
        away = max([self.away_ms, *(one.away_ms for one in self.answers)])
        mean = sum(times) / len(times) if times else None
        return Session(response_ms=mean, away_s=away / 1000, bot=bool(self.bot))


@final
class Record:
    """A study's header and people, built up entry by entry."""

    def __init__(self) -> None:
        self.name = ""
        self.digest: str | None = None
        self.texts: str | None = None
        self.rehearsal: str | None = None
        self.people: dict[str, Person] = {}
        self._experiment: Experiment | None = None
        self._trials = 0

    @property
    def experiment(self) -> Experiment:
        """The design. Raises BadInput before the header was read."""
        if self._experiment is None:
            raise BadInput("the results do not begin with their study")
        return self._experiment

    def add(self, kind: str, time: float, body: Mapping[str, Any], where: str | None = None) -> None:
        """Take one entry in. Raises BadInput for one that cannot follow what was before it."""
        try:
            self._add(kind, time, body)
        except BadInput as error:
            raise BadInput(error.what, where=error.where or where, hint=error.hint) from error
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"an entry of kind {kind!r} lacks what it needs: {error}", where=where) from error

    def _add(self, kind: str, time: float, body: Mapping[str, Any]) -> None:
        if kind == "study":
            self._study(body)
        elif kind == "texts":
            self.texts = str(body["digest"])
        elif kind == "begin":
            self._begin(time, body)
        elif kind == "trial":
            person = self._going(body)
            answer = Answer(**{name: body[name] for name in Answer.__slots__})
            check_next(person, answer)
            person.answers.append(answer)
        elif kind == "rejoin":
            self._known(body).token = str(body["token"])
        elif kind == "end":
            person = self._going(body)
            if not person.whole:
                raise BadInput(f"a person ends after {len(person.answers)} of {len(person.order)} choices")
            person.status, person.away_ms = "ended", float(body["away_ms"])
            person.bot = tuple(dict.fromkeys((*person.bot, *body["bot"])))
        elif kind == "withdraw":
            self._known(body).status = "withdrawn"
        else:
            raise BadInput(f"an entry of kind {kind!r}")

    def _study(self, body: Mapping[str, Any]) -> None:
        if body["version"] != VERSION:
            raise BadInput(f"results of version {body['version']}; this build reads {VERSION}")
        if self.digest is not None:
            raise BadInput("a second study in one file")
        design = body["design"]
        self.name, self.digest = str(body["name"]), str(body["digest"])
        self.rehearsal = design.get("rehearsal")
        self._experiment, self._trials = experiment_of(design["experiment"]), int(design["trials"])

    def _begin(self, time: float, body: Mapping[str, Any]) -> None:
        name = str(body["participant"])
        if name in self.people:
            raise BadInput(f"{name} begins twice")
        stimuli = self.experiment.stimuli
        order = tuple(int(one) for one in body["order"])
        if sorted(order) != sorted([*range(stimuli)] * repeats(stimuli, self._trials)):
            raise BadInput("a person's order is not that of the design")
        sent = body["recruited"] or {}
        self.people[name] = Person(
            id=name, number=len(self.people), order=order, token=str(body["token"]), began=time,
            recruiter=sent.get("recruiter"), person=sent.get("person"), session=sent.get("session"),
            bot=tuple(body["bot"]), code=str(body["code"]), texts=str(body["texts"]),
        )  # fmt: skip

    def _known(self, body: Mapping[str, Any]) -> Person:
        person = self.people.get(str(body["participant"]))
        if person is None:
            raise BadInput(f"nobody called {body['participant']!r} began")
        return person

    def _going(self, body: Mapping[str, Any]) -> Person:
        person = self._known(body)
        if person.status != "going":
            raise BadInput(f"{person.id} has {person.status} already")
        return person


def check_next(person: Person, answer: Answer) -> None:
    """Refuse an answer that is not the person's next. Raises BadInput."""
    done, total = len(person.answers), len(person.order)
    if answer.index != done or done >= total:
        raise BadInput(f"choice {answer.index} was sent; {done} of {total} are made")
    if answer.stimulus != person.order[done]:
        raise BadInput(f"choice {done} is of pair {person.order[done]}, and {answer.stimulus} was sent")


def answer_body(person: Person, answer: Answer) -> Json:
    """An answer as an entry of the results."""
    return {"participant": person.id, **{name: getattr(answer, name) for name in Answer.__slots__}}
