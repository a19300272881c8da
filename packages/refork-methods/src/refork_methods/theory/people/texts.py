"""What the page of an experiment says: texts that a researcher may edit, with the defaults of each domain."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refork.errors import BadInput
from refork.types import Json
from refork_methods.theory.experiment import Experiment

#: What may stand in braces in any text; a page fills in those that it knows there.
PLACEHOLDERS: Final = frozenset(
    {"trials", "minutes", "contact", "rating", "number", "total", "percent", "amount", "option"}
)
#: Files longer than this are no texts of a page.
LONGEST: Final = 256 << 10
_WORDING: Final = "refork_methods.theory.people"
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
Lines: TypeAlias = list[str]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@final
class Consent(_Section):
    """The first screen: what the study is, what is recorded, and the two buttons."""

    heading: str
    about: Lines
    collected_heading: str
    collected: Lines
    recruited_sealed: str
    recruited_plain: str
    not_collected: str
    rights_heading: str
    rights: Lines
    statement: str
    agree: str
    decline: str


@final
class Note(_Section):
    """A screen of a heading and paragraphs; ``button`` where one leads on."""

    heading: str
    text: Lines
    button: str = ""


@final
class Page(_Section):
    """A page of the instructions; ``example`` shows the first pair below the text."""

    heading: str
    text: Lines
    example: bool = False


@final
class Task(_Section):
    """A choice. The words of the other domain may be left out."""

    question: str
    progress: str
    option_a: str
    option_b: str
    choose: str
    keys: str
    expert: str = ""
    experts: str = ""
    right: str = ""
    says_yes: str = ""
    says_no: str = ""
    binary: str = ""
    graded: str = ""
    chance: str = ""
    win: str = ""
    lose: str = ""
    nothing: str = ""


@final
class End(_Section):
    """The last screen."""

    heading: str
    text: Lines
    code: str
    copy_: str = Field(alias="copy")
    copied: str
    return_: str = Field(alias="return")
    close: str
    download: str
    send: str


@final
class Withdraw(_Section):
    """The way out, and the question before it."""

    link: str
    heading: str
    text: str
    confirm: str
    cancel: str
    done_heading: str
    done: Lines


@final
class Messages(_Section):
    """What is said when something is wrong."""

    lost: str
    refused: str
    reload: str
    again: str
    full: str
    link: str
    contact: str
    elsewhere: str
    stale: str
    script: str


@final
class Texts(_Section):
    """All texts of a page. ``minutes``: how long it takes, as people are told; None: reckoned."""

    lang: str = Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
    title: str
    contact: str
    minutes: int | None = Field(ge=1, le=600)
    consent: Consent
    declined: Note
    back: str
    next: str
    start: str
    again: Note
    instructions: list[Page] = Field(min_length=1)
    task: Task
    end: End
    withdraw: Withdraw
    messages: Messages

    def to_json(self) -> Json:
        """As plain JSON, with the names of the file."""
        return self.model_dump(by_alias=True)


def default_texts(domain: str) -> Texts:
    """The texts of a domain as they come with the package. Raises BadInput for a domain without a page."""
    return _texts(_defaults(domain), None)


def read_texts(path: Path | str, domain: str) -> Texts:
    """A domain's texts with those of a YAML file in their place; what the file leaves out stays as it is.

    Raises: BadInput for a file that cannot be read, a name that is no text, a text of another kind, or
        braces around anything but :data:`PLACEHOLDERS`.
    """
    file = Path(path)
    try:
        if file.stat().st_size > LONGEST:
            raise BadInput(f"the texts are longer than {LONGEST:,} bytes", where=str(file))
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"the texts cannot be read: {error}", where=str(file)) from error
    if not isinstance(given, dict):
        raise BadInput("the texts are no YAML mapping", where=str(file))
    return _texts(_merged(_defaults(domain), given), str(file))


def template(domain: str) -> str:
    """A domain's texts as YAML, to be edited."""
    head = "# What the page says. Leave out what stays as it is; {names} in braces are filled in.\n"
    body: str = yaml.safe_dump(
        default_texts(domain).to_json(), sort_keys=False, allow_unicode=True, width=100
    )
    return head + body


def filled(texts: Texts, experiment: Experiment, trials: int) -> Json:
    """The texts as JSON with what is known of the experiment filled in."""
    task = texts.task
    known = {
        "trials": str(trials),
        "minutes": str(texts.minutes or _reckoned(trials)),
        "contact": texts.contact,
        "rating": task.binary if getattr(experiment, "binary", False) else task.graded,
    }
    found: Json = _fill(texts.to_json(), known)
    return found


def _reckoned(trials: int) -> int:
    """Minutes for reading, and five seconds for each choice."""
    return 2 + math.ceil(trials * 5 / 60)


@cache
def _defaults(domain: str) -> dict[str, Any]:
    folder = files(_WORDING).joinpath("wording")
    own = folder.joinpath(f"{domain}.yaml")
    if domain == "common" or not own.is_file():
        raise BadInput(f"there is no page for the domain {domain!r}", hint="cues or gambles")
    parts = [yaml.safe_load(part.read_text("utf-8")) for part in (folder.joinpath("common.yaml"), own)]
    return _merged(parts[0], parts[1])


def _merged(base: Mapping[str, Any], over: Mapping[Any, Any]) -> dict[str, Any]:
    """The first with the second's values in place of its own, section by section."""
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        found[key] = _merged(old, value) if both else value  # type: ignore[arg-type]  # both are dicts
    return found


def _texts(data: dict[str, Any], where: str | None) -> Texts:
    try:
        texts = Texts.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "texts"
        raise BadInput(f"{name}: {first['msg']}", where=where) from error
    for name, text in _strings(texts.to_json()):
        for found in _BRACES.findall(text):
            if found not in PLACEHOLDERS:
                known = ", ".join(sorted(PLACEHOLDERS))
                raise BadInput(f"{name}: nothing fills in {{{found}}}", where=where, hint=f"known: {known}")
    return texts


def _strings(data: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, str):
        yield name, data
    elif isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield from _strings(value, f"{name}.{key}" if name else str(key))


def _fill(data: Any, known: Mapping[str, str]) -> Any:
    if isinstance(data, str):
        return _BRACES.sub(lambda found: known.get(found[1], found[0]), data)
    if isinstance(data, dict):
        return {key: _fill(value, known) for key, value in data.items()}
    return [_fill(value, known) for value in data] if isinstance(data, list) else data
