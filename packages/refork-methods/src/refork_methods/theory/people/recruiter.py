"""Who sent a person: the parameters that recruiting services append to a study's address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from refork.errors import BadInput
from refork.types import Json

_VALUE: Final = re.compile(r"[A-Za-z0-9._~:@+-]{1,128}\Z")
#: What Mechanical Turk sends to somebody who only looks at a task.
_PREVIEW: Final = "ASSIGNMENT_ID_NOT_AVAILABLE"


@final
class BadLink(BadInput):
    """An address whose parameters name nobody who could take part."""


@final
@dataclass(frozen=True, slots=True)
class Names:
    """The parameters of one recruiting service: of the person, the study and the visit; None: it has none."""

    name: str
    person: str
    study: str | None = None
    session: str | None = None

    def to_json(self) -> Json:
        """For the page."""
        return {"name": self.name, "person": self.person, "study": self.study, "session": self.session}


#: Services by their parameters; the first whose person's parameter is there is taken.
RECRUITERS: Final = (
    Names("prolific", "PROLIFIC_PID", "STUDY_ID", "SESSION_ID"),
    Names("connect", "participantId", "projectId", "assignmentId"),
    Names("mturk", "workerId", "hitId", "assignmentId"),
    Names("sona", "survey_code"),
    Names("link", "participant", "study", "session"),
    Names("link", "participant_id", "study_id", "session_id"),
)


@final
@dataclass(frozen=True, slots=True)
class Recruited:
    """A person as a recruiting service names them. ``session``: of this visit, known to nobody else.

    Raises: BadLink for a value that is none, such as a placeholder that nobody filled in.
    """

    recruiter: str
    person: str
    study: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        if _PREVIEW in (self.person, self.session):
            raise BadLink("this is a preview of the task; accept it to take part")
        for value in (self.person, self.study, self.session):
            if value is not None and not _VALUE.match(value):
                raise BadLink(
                    f"the link holds {value[:40]!r} in place of a participant's number",
                    hint="open the study from the recruiting service again",
                )


def recruited(params: Mapping[str, str]) -> Recruited | None:
    """The person that an address's parameters name; None where they name nobody.

    Raises: BadLink as :class:`Recruited`.
    """
    for names in RECRUITERS:
        person = params.get(names.person)
        if person:
            rest = [params.get(name) or None if name else None for name in (names.study, names.session)]
            return Recruited(names.name, person, rest[0], rest[1])
    return None
