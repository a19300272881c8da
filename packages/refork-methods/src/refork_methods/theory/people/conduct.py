"""A study while people take part: who they are, what comes next, every answer on disk before it counts."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, final

from refork.errors import BadInput, CannotDo, Mismatch, TreeBusy
from refork.types import Json
from refork_methods.journal import Journal
from refork_methods.theory.people.codes import new_code, new_key, pseudonym, sealed_session, token_digest
from refork_methods.theory.people.document import Study
from refork_methods.theory.people.record import Answer, Person, Record, Status, answer_body, check_next
from refork_methods.theory.people.recruiter import Recruited, recruited

#: Signs of a program in a person's place that a page can report.
BOT_SIGNS: Final = ("webdriver", "untrusted", "trap")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{32,128}\Z")


@final
class UnknownVisitor(BadInput):
    """Nobody began with this token."""


@final
class NotNow(BadInput):
    """This person cannot do this, or not any more. ``code``: which of the page's messages says so."""

    def __init__(self, what: str, code: Literal["again", "full", "order", "stale"] = "order") -> None:
        super().__init__(what)
        self.code = code


@final
@dataclass(frozen=True, slots=True)
class Standing:
    """Where a person is; ``code`` and ``way_back`` at the end."""

    status: Status
    answered: int
    order: tuple[int, ...]
    code: str | None = None
    way_back: str | None = None

    def to_json(self) -> Json:
        """As the page reads it."""
        found = {"status": self.status, "answered": self.answered, "order": list(self.order)}
        rest = {"code": self.code, "return": self.way_back}
        return found | {name: value for name, value in rest.items() if value is not None}


@final
class Conduct:
    """A study's results file, held open by one process. Safe to call from several threads.

    Every method that changes something has written it durably when it returns; sent twice, it counts once.
    """

    def __init__(self, study: Study, journal: Journal, key: str, *, most: int | None = None) -> None:
        self.study = study
        self._journal, self._key, self._most = journal, key, most
        self._turn = threading.RLock()
        self._lock: int | None = None
        self._record = Record()
        for entry in journal:
            self._record.add(entry.kind, entry.time, entry.body, str(journal.file))
        self._tokens = {one.token: one for one in self._record.people.values()}
        self._sealed = {one.person: one for one in self._record.people.values() if one.person}
        self._head()

    @classmethod
    def open(cls, study: Study, out: Path | str, *, most: int | None = None) -> Self:
        """Begin or go on with a results file; its key lies beside it, readable by its owner only.

        ``most``: people who may begin; None: as many as come.

        Raises:
            Mismatch: the file holds another study, or its key is gone.
            TreeBusy: another process serves it.
            CannotDo: the file cannot be made.
        """
        file = Path(out)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            key, lock = _key(file)
        except OSError as error:
            raise CannotDo(f"the results cannot be kept: {error.strerror}", where=str(file)) from error
        try:
            _settle(file.parent)
            made = cls(study, Journal(file, noun="study", keep=0), key, most=most)
        except BaseException:
            os.close(lock)
            raise
        made._lock = lock
        return made

    def close(self) -> None:
        """Let another process go on with the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def counts(self) -> dict[Status, int]:
        """How many people are in each status."""
        found: dict[Status, int] = {"going": 0, "ended": 0, "withdrawn": 0}
        with self._turn:
            for person in self._record.people.values():
                found[person.status] += 1
        return found

    def begin(
        self,
        token: str,
        params: Mapping[str, str] | None = None,
        bot: Sequence[str] = (),
        page: Mapping[str, Any] | None = None,
        texts: str | None = None,
    ) -> Standing:
        """Somebody agreed to take part. ``token``: a secret that their browser drew.

        A token that is known changes nothing. ``params``: of the address; ``bot``: signs of a program seen so
        far. Who comes again on the same visit of a recruiting service, in a browser that forgot its token,
        goes on where they were. ``texts``: digest of those that were read; None: of the study's.

        Raises:
            BadInput: a token, sign or parameter that is none.
            NotNow: the person took part before, the study is full, or its texts were changed meanwhile.
        """
        if not _TOKEN.match(token):
            raise BadInput("a token is 32 to 128 letters, digits, - and _")
        who = recruited(params or {})
        signs = _signs(bot)
        with self._turn:
            if token_digest(token) in self._tokens:
                return self.standing(token)
            if texts not in (None, self.study.texts_digest):
                raise NotNow("these are not the study's texts any more", "stale")
            known = self._sealed.get(pseudonym(self._key, who)) if who else None
            if who and known:
                return self._again(known, who, token)
            if self._most is not None and len(self._record.people) >= self._most:
                raise NotNow("this study has enough participants", "full")
            name = f"p-{secrets.token_hex(6)}"
            order = self.study.order(len(self._record.people))
            self._write("begin", {
                "participant": name, "token": token_digest(token), "order": order,
                "texts": self.study.texts_digest, "recruited": self._sent(who), "bot": signs,
                "page": dict(page or {}), "code": self.study.completion.of(new_code()),
            })  # fmt: skip
            person = self._record.people[name]
            self._tokens[person.token] = person
            if person.person:
                self._sealed[person.person] = person
            return self._standing(person)

    def standing(self, token: str) -> Standing:
        """Where somebody is. Raises UnknownVisitor."""
        with self._turn:
            return self._standing(self._of(token))

    def answer(self, token: str, answer: Answer) -> Standing:
        """Take a choice; the same one again changes nothing.

        Raises: UnknownVisitor; NotNow for another choice than the next, or from somebody who is done.
        """
        with self._turn:
            person = self._of(token)
            if answer.index < len(person.answers):
                if person.answers[answer.index].same(answer):
                    return self._standing(person)
                raise NotNow(f"choice {answer.index} was made otherwise")
            if person.status != "going":
                raise NotNow(f"this person has {person.status} already")
            try:
                check_next(person, answer)
            except BadInput as error:
                raise NotNow(error.what) from error
            self._write("trial", answer_body(person, answer))
            return self._standing(person)

    def end(self, token: str, away_ms: float = 0.0, bot: Sequence[str] = ()) -> Standing:
        """All choices are made; gives the completion code. Raises UnknownVisitor, NotNow, BadInput."""
        signs = _signs(bot)
        checked = Answer(0, 0, 0, 0.0, away_ms=away_ms).away_ms
        with self._turn:
            person = self._of(token)
            if person.status == "withdrawn" or not person.whole:
                raise NotNow(f"{len(person.answers)} of {len(person.order)} choices are made")
            if person.status == "going":
                self._write("end", {"participant": person.id, "away_ms": checked, "bot": signs})
            return self._standing(person)

    def withdraw(self, token: str) -> Standing:
        """Somebody takes their consent back: their choices are left out of every reading."""
        with self._turn:
            person = self._of(token)
            if person.status != "withdrawn":
                self._write("withdraw", {"participant": person.id})
            return self._standing(person)

    def _head(self) -> None:
        header = self.study.header()
        if self._record.digest is None:
            self._write("study", header)
        elif self._record.digest != header["digest"]:
            raise Mismatch(
                "these results are of another study: its pairs, trials or seed differ",
                where=str(self._journal.file),
                hint="serve the same experiment, or name another --out",
            )
        if self._record.texts != self.study.texts_digest:
            self._write("texts", {"digest": self.study.texts_digest, "texts": self.study.texts.to_json()})

    def _write(self, kind: str, body: Json) -> None:
        """Put an entry on the disk, then take it in; whoever calls has checked that it may follow."""
        entry = self._journal.append(kind, body)
        self._record.add(kind, entry.time, entry.body)

    def _of(self, token: str) -> Person:
        person = self._tokens.get(token_digest(token))
        if person is None:
            raise UnknownVisitor("this browser is not known to the study")
        return person

    def _again(self, person: Person, who: Recruited, token: str) -> Standing:
        """The same visit in a browser that forgot its token; another visit is a second taking part."""
        session = sealed_session(self._key, who)
        if session is None or session != person.session:
            raise NotNow("this person has taken part already", "again")
        self._tokens.pop(person.token, None)
        self._write("rejoin", {"participant": person.id, "token": token_digest(token)})
        self._tokens[person.token] = person
        return self._standing(person)

    def _sent(self, who: Recruited | None) -> Json | None:
        if who is None:
            return None
        sealed = {"person": pseudonym(self._key, who), "session": sealed_session(self._key, who)}
        return {"recruiter": who.recruiter, "study": who.study, **sealed}

    def _standing(self, person: Person) -> Standing:
        code = person.code if person.status == "ended" else None
        back = None if code is None else self.study.completion.way_back(code, person.recruiter)
        return Standing(person.status, len(person.answers), person.order, code, back)


def _signs(bot: Sequence[str]) -> list[str]:
    if any(sign not in BOT_SIGNS for sign in bot):
        raise BadInput(f"signs of a program are {', '.join(BOT_SIGNS)}")
    return list(dict.fromkeys(bot))


def key_file(results: Path) -> Path:
    """Where the key of a results file lies."""
    return results.with_name(results.name + ".key")


def _key(results: Path) -> tuple[str, int]:
    """The study's key, and a lock on it that is held until it is closed."""
    file, empty = key_file(results), results.stat().st_size == 0
    if not file.exists() and not empty:
        raise Mismatch(
            "the study's key is gone; without it nobody who comes again is known",
            where=str(file),
            hint="put it back, or name another --out",
        )
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _hold(lock, results)
        text = os.pread(lock, 256, 0).decode("ascii", "replace").strip()
        if not text:
            if not empty:
                raise Mismatch("the study's key is empty", where=str(file))
            text = new_key()
            os.pwrite(lock, f"{text}\n".encode(), 0)
            os.fsync(lock)
        if len(text) != 64 or set(text) - set("0123456789abcdef"):
            raise Mismatch("this is no key of a study", where=str(file))
    except BaseException:
        os.close(lock)
        raise
    return text, lock


def _settle(folder: Path) -> None:
    """Make new files' names durable, where the system lets folders be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _hold(lock: int, results: Path) -> None:
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TreeBusy("another process serves this study", where=str(results)) from error
