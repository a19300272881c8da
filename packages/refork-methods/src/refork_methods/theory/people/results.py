"""Results of a study as choices that theories are scored on, without those who break the rules of quality."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.settings import present_mark
from refork.types import Json
from refork_methods.journal import Journal
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.people.codes import pseudonym
from refork_methods.theory.people.conduct import key_file
from refork_methods.theory.people.record import Person, Record
from refork_methods.theory.people.recruiter import Recruited
from refork_methods.theory.quality import QualityRules
from refork_methods.theory.read import Read
from refork_methods.theory.trials import Observation, Trials

#: How a file that a person saved at the end says what it is.
FORMAT: Final = "refork-people"
#: Files longer than this are no one person's answers.
LONGEST: Final = 16 << 20
COLUMNS: Final = (
    "subject_id", "trial", "stimulus", "option_a_ratings", "option_b_ratings", "validities", "response",
    "rt_ms", "by", "reason",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Results:
    """A study as it stands: its people in the order they began, and why each is left out who is.

    ``rehearsal``: the theory that simulated them; None: they are people.
    """

    name: str
    experiment: Experiment
    people: tuple[Person, ...]
    reasons: dict[str, str]
    rehearsal: str | None = None

    @property
    def counted(self) -> tuple[Person, ...]:
        """Those whose choices count."""
        return tuple(one for one in self.people if one.id not in self.reasons)

    def observation(self) -> Observation:
        """The choices of those who are kept, numbered anew from 0. Raises BadInput where nobody is."""
        if not self.counted:
            raise BadInput(
                "nobody's choices are left", where=self.name, hint="see: refork theory people FILE"
            )
        parts = [one.trials() for one in self.counted]
        person = np.concatenate([np.full(len(part.person), n) for n, part in enumerate(parts)])
        stimulus, response = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("stimulus", "response")
        )
        name = self.name if self.rehearsal is None else f"{self.name}, a rehearsal"
        return Observation(name, self.experiment, Trials(person, stimulus, response))

    def to_json(self) -> Json:
        """Everybody's part, without the single choices."""
        return {
            "name": self.name,
            "rehearsal": self.rehearsal,
            "kept": len(self.counted),
            "left_out": len(self.reasons),
            "people": [person_row(one, self.reasons.get(one.id)) for one in self.people],
        }

    def table(self, *, counted_only: bool) -> str:
        """CSV of the choices of those who are kept, or of the others with the reason; one row a choice.

        Of people who withdrew no choice is given.
        """
        out = io.StringIO()
        write = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        write.writeheader()
        for one in self.people:
            if (one.id not in self.reasons) == counted_only and one.status != "withdrawn":
                write.writerows(_rows(self.experiment, one, self.reasons.get(one.id, "")))
        return out.getvalue()


def read_results(path: Path | str, rules: QualityRules | None = None) -> Results:
    """A study from its server's results file, from a file that a person saved, or from a folder of those.

    Left out, with the reason: who withdrew, who did not end, who came a second time, and who breaks a rule
    (source of the rules: arXiv:2606.26448).

    Raises: BadInput or Mismatch for a file that cannot be read or was changed; it names the place.
    """
    file = Path(path)
    try:
        record = _saved(file) if file.is_dir() or file.suffix == ".json" else _served(file)
    except OSError as error:
        raise BadInput(f"the results cannot be read: {error.strerror}", where=str(file)) from error
    people = tuple(record.people.values())
    reasons = _reasons(people, rules or QualityRules())
    return Results(record.name, record.experiment, people, reasons, record.rehearsal)


def is_results(path: Path | str) -> bool:
    """Whether a file looks like results of a page, by its beginning; a folder, by its files."""
    file = Path(path)
    if file.is_dir():
        return any(is_results(one) for one in sorted(file.glob("*.json")))
    try:
        with file.open("rb") as stream:
            head = stream.read(512)
    except OSError:
        return False
    marks = (f'"{FORMAT}"'.encode(), b'"ramify-people"')
    return any(mark in head for mark in marks) or head.startswith(b'{"body":{"design":{"experiment":')


def person_row(person: Person, reason: str | None) -> Json:
    """One person's part in numbers."""
    seen = person.quality_session()
    return {
        "participant": person.id,
        "status": person.status,
        "choices": len(person.answers),
        "of": len(person.order),
        "mean_rt_ms": seen.response_ms,
        "away_s": seen.away_s,
        "bot": list(person.bot),
        "recruiter": person.recruiter,
        "code": person.code if person.status == "ended" else None,
        "reason": reason,
    }


def _served(file: Path) -> Record:
    if not file.is_file():
        raise BadInput("there are no such results", where=str(file))
    record = Record()
    for entry in Journal(file, noun="study", keep=0):
        record.add(entry.kind, entry.time, entry.body, f"{file}, entry {entry.n}")
    return record


def _saved(path: Path) -> Record:
    record, texts = Record(), set()
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        data = _file(file)
        digest = data["header"]["digest"]
        if record.digest is None:
            record.add("study", 0.0, data["header"], str(file))
        elif digest != record.digest:
            raise BadInput("this file is of another study than those before it", where=str(file))
        name = data["entries"][0]["body"].get("participant") if data["entries"] else None
        told = json.dumps(data["entries"], sort_keys=True)
        if name in record.people and told in texts:
            continue  # the same file, sent twice
        texts.add(told)
        for entry in data["entries"]:
            record.add(entry["kind"], float(entry["time"]), entry["body"], str(file))
    if record.digest is None:
        raise BadInput("there are no saved answers", where=str(path))
    return record


def _file(file: Path) -> dict[str, Any]:
    if file.stat().st_size > LONGEST:
        raise BadInput(f"the file is longer than {LONGEST:,} bytes", where=str(file))
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not JSON: {error}", where=str(file)) from error
    if not isinstance(data, dict) or present_mark(data.get("format")) != FORMAT:
        raise BadInput("these are no answers that a page saved", where=str(file))
    header, entries = data.get("header"), data.get("entries")
    whole = isinstance(header, dict) and "digest" in header and isinstance(entries, list)
    if not whole or not all(isinstance(one, dict) and _entry(one) for one in entries or ()):
        raise BadInput("the file lacks its header or entries", where=str(file))
    return data


def _entry(one: dict[str, Any]) -> bool:
    time = isinstance(one.get("time"), int | float)
    return time and isinstance(one.get("kind"), str) and isinstance(one.get("body"), dict)


def _reasons(people: tuple[Person, ...], rules: QualityRules) -> dict[str, str]:
    found: dict[str, str] = {}
    came: set[tuple[str | None, str]] = set()
    for one in sorted(people, key=lambda person: (person.began, person.number)):
        again = one.person is not None and (one.recruiter, one.person) in came
        if one.person is not None:
            came.add((one.recruiter, one.person))
        reason = _reason(one, rules, again)
        if reason is not None:
            found[one.id] = reason
    return found


def _reason(person: Person, rules: QualityRules, again: bool) -> str | None:
    if person.status == "withdrawn":
        return "withdrew"
    if again:
        return "came a second time"
    if person.status != "ended":
        return f"stopped after {len(person.answers)} of {len(person.order)} choices"
    return rules.reason(person.trials(), person.quality_session())


def _rows(experiment: Experiment, person: Person, reason: str) -> Iterator[dict[str, Any]]:
    weights = list(experiment.validities) if isinstance(experiment, CueExperiment) else ""
    for answer in person.answers:
        pair = experiment.stimulus(answer.stimulus)
        yield {
            "subject_id": person.id,
            "trial": answer.index,
            "stimulus": answer.stimulus,
            "option_a_ratings": json.dumps(pair["a"]),
            "option_b_ratings": json.dumps(pair["b"]),
            "validities": json.dumps(weights) if weights else "",
            "response": answer.response,
            "rt_ms": f"{answer.rt_ms:.1f}",
            "by": answer.by,
            "reason": reason,
        }


def read_people(path: Path | str) -> Read:
    """The one observation of a study's results, as the other readers give theirs. Raises BadInput."""
    return Read((read_results(path).observation(),), {})


def find_person(results: Results, path: Path | str, whose: str) -> Results:
    """The results of one person, whom a recruiting service knows as ``RECRUITER:NUMBER``.

    Raises: BadInput where the study's key is not beside the results, or nobody of that number took part.
    """
    recruiter, colon, number = whose.partition(":")
    if not colon:
        raise BadInput(f"{whose!r} names nobody", hint="as in prolific:5f2b...")
    who, key = Recruited(recruiter, number), key_file(Path(path))
    try:
        sealed = pseudonym(key.read_text(encoding="ascii").strip(), who)
    except (OSError, ValueError) as error:
        raise BadInput("the study's key cannot be read", where=str(key)) from error
    found = tuple(one for one in results.people if one.person == sealed)
    if not found:
        raise BadInput(f"{recruiter} sent nobody of this number", where=str(path))
    reasons = {one.id: results.reasons[one.id] for one in found if one.id in results.reasons}
    return replace(results, people=found, reasons=reasons)
