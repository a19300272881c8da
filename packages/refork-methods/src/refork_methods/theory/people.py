"""Real people: an experiment as a page for any web space, and whose choices count.

The page is made of jsPsych's own plugins. A person's choices stay in the window until the end, and leave it
as one CSV of trials, which the readers of choices take as it is.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote, urlsplit

import numpy as np
import yaml

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.domains import DOMAINS
from refork_methods.theory.experiment import TRIALS, Experiment, repeats
from refork_methods.theory.quality import QualityRules, Session
from refork_methods.theory.read import choice_row, read_rows
from refork_methods.theory.trials import Trials

#: Parameters by which a link names a person: of Prolific, Connect, Mechanical Turk, SONA, and one's own.
RECRUITERS: Final = ("PROLIFIC_PID", "participantId", "workerId", "survey_code", "participant")
#: Columns of the page's CSV beside those of the domain.
RECORDED: Final = ("observation", "subject_id", "response", "rt", "away_s", "bot", "recruited")
_PROLIFIC: Final = "https://app.prolific.com/submissions/complete?cc={code}"
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def read_experiment(path: Path) -> Experiment:
    """The experiment of a JSON or YAML file, whose ``domain`` says which kind it is. Raises BadInput."""
    data = _yaml(path, "experiment")
    domain = data.get("domain")
    if not isinstance(domain, str) or domain not in DOMAINS:
        raise BadInput(f"the experiment's domain is {domain!r}", where=str(path), hint=" or ".join(DOMAINS))
    return DOMAINS[domain].read(data, str(path))


def read_texts(path: Path | None) -> dict[str, Any]:
    """What the page says; texts of a YAML file take the place of ours. Raises BadInput for another name."""
    texts: dict[str, Any] = yaml.safe_load(_page().joinpath("texts.yaml").read_text("utf-8"))
    for name, text in ({} if path is None else _yaml(path, "texts")).items():
        if name not in texts:
            raise BadInput(f"{name!r} is no text", where=str(path), hint=f"one of {', '.join(texts)}")
        if type(text) is not type(texts[name]):
            raise BadInput(
                f"the text {name!r} is {text!r}", where=str(path), hint="a text, or a list of pages"
            )
        texts[name] = text
    return texts


def export_page(
    experiment: Experiment,
    out: Path,
    *,
    name: str = "study",
    texts: Mapping[str, Any] | None = None,
    trials: int = TRIALS,
    code: str | None = None,
    return_to: str | None = None,
    post: str | None = None,
) -> list[str]:
    """Write the page of an experiment into a folder; gives the names of its files.

    ``trials``: choices of one person, as far as whole repetitions of the pairs go. ``code``: shown at the
    end. ``return_to``: the link there, ``{code}`` filled in; Prolific's where only a code is given. ``post``:
    an https address that takes {"experimentID": name, "filename", "data"} as JSON at the end, as DataPipe's
    does; without one the person saves the file.

    Raises:
        BadInput: a code or address that is none, or a folder that holds something else.
        CannotDo: it cannot be written.
    """
    if code is not None and not _CODE.match(code):
        raise BadInput(f"the completion code is {code!r}", hint="letters, digits, - and _")
    back = return_to or (_PROLIFIC if code else None)
    for address in (back, post):
        if address is not None and not (address.startswith("https://") and urlsplit(address).hostname):
            raise BadInput(f"{address!r} is no https address")
    # study.json marks a folder as an earlier export, which may be written over.
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "study.json").is_file())):
        raise BadInput("this is no empty folder, and no export", where=str(out), hint="name another --out")
    study = _study(experiment, name, texts or read_texts(None), trials) | {
        "code": code,
        "return_to": None if back is None else back.replace("{code}", quote(code or "", safe="")),
        "post": post,
    }
    told = json.dumps(study, ensure_ascii=False, indent=1)
    # "<" would end the script element that the study stands in.
    page = _page().joinpath("index.html").read_text("utf-8").replace("STUDY", told.replace("<", "\\u003c"))
    try:
        with as_file(_page()) as folder:
            shutil.copytree(folder, out / "assets", dirs_exist_ok=True, ignore=_no_templates)
        (out / "index.html").write_text(page, encoding="utf-8")
        (out / "study.json").write_text(told + "\n", encoding="utf-8")
    except OSError as error:
        raise CannotDo(f"the page cannot be written: {error.strerror}", where=str(out)) from error
    return sorted(str(one.relative_to(out)) for one in out.rglob("*") if one.is_file())


def _no_templates(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("index.html", "texts.yaml")]


def _study(experiment: Experiment, name: str, texts: Mapping[str, Any], trials: int) -> Json:
    """All that the page is given: its texts, and each pair as HTML with the columns of its CSV."""
    times = repeats(experiment.stimuli, trials)
    total = times * experiment.stimuli
    known = {
        "trials": str(total),
        "minutes": str(2 + math.ceil(total * 5 / 60)),  # for reading, and five seconds a choice
        "contact": texts["contact"],
        "rating": texts["binary" if getattr(experiment, "binary", False) else "graded"],
    }
    columns = list(choice_row(experiment, 0))
    pairs = [
        {
            "pair": pair_html(experiment, index, texts),
            "data": {"task": "choice", "observation": name, **choice_row(experiment, index)},
        }
        for index in range(experiment.stimuli)
    ]
    said = {key: _filled(text, known) for key, text in texts.items() if isinstance(text, str)}
    pages = [_filled(page, known) for page in texts[experiment.domain]]
    pages[0] += pair_html(experiment, 0, texts)  # an example
    return {
        "name": name, "texts": said, "instructions": pages, "pairs": pairs, "repeats": times,
        "columns": [*RECORDED, *columns], "recruiters": RECRUITERS,
    }  # fmt: skip


def pair_html(experiment: Experiment, index: int, texts: Mapping[str, Any]) -> str:
    """One pair of options as people see it: a table of ratings, or two lotteries side by side."""
    pair = experiment.stimulus(index)
    if isinstance(experiment, CueExperiment):
        shown = {0: texts["no"], 1: texts["yes"]} if experiment.binary else {}
        rows = [f"<tr><th scope=col>{texts['experts']}<th scope=col>A<th scope=col>B"]
        for place, (validity, *ratings) in enumerate(
            zip(pair["validities"], pair["a"], pair["b"], strict=True), 1
        ):
            expert = _filled(texts["expert"], {"number": str(place)})
            right = _filled(texts["right"], {"percent": f"{100 * validity:g}%"})
            cells = "".join(f"<td>{shown.get(x, x)}" for x in ratings)
            rows.append(f"<tr><th scope=row>{expert}<small>{right}</small>{cells}")
        return f'<table class="pair">{"".join(rows)}</table>'
    sides = []
    for side in ("a", "b"):
        branches = "".join(
            f"<dt>{100 * chance:g}%<dd>{_outcome(amount, texts)}"
            for amount, chance in pair[side]
            if chance > 0
        )
        sides.append(f"<section><h2>{side.upper()}</h2><dl>{branches}</dl></section>")
    return f'<div class="gambles">{"".join(sides)}</div>'


def _outcome(amount: float, texts: Mapping[str, Any]) -> str:
    kind = "nothing" if amount == 0 else "win" if amount > 0 else "lose"
    return _filled(texts[kind], {"amount": f"{abs(amount):g}"})


def _filled(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"{{{name}}}", html.escape(value) if name != "rating" else value)
    return text


def _page() -> Any:
    return files("refork_methods.theory").joinpath("page")


def _yaml(path: Path, what: str) -> dict[Any, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"the {what} cannot be read: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise BadInput(f"the {what} is no mapping", where=str(path))
    return data


@final
@dataclass(frozen=True, slots=True)
class Participants:
    """The rows of trials of each person, and why some do not count."""

    columns: tuple[str, ...]
    rows: dict[str, list[dict[str, str]]]
    reasons: dict[str, str]

    def table(self, *, counted: bool) -> str:
        """CSV of the choices of those who count, or of the others with the reason."""
        stream = io.StringIO()
        table = csv.DictWriter(stream, [*self.columns, *([] if counted else ["reason"])], lineterminator="\n")
        table.writeheader()
        for person, rows in self.rows.items():
            if (person not in self.reasons) == counted:
                more = {} if counted else {"reason": self.reasons[person]}
                table.writerows(row | more for row in rows)
        return stream.getvalue()

    def to_json(self) -> Json:
        """One row a person."""
        people = [
            {"participant": name, "choices": len(rows), "mean_rt_ms": session_of(rows).response_ms,
             "away_s": session_of(rows).away_s, "reason": self.reasons.get(name)}
            for name, rows in self.rows.items()
        ]  # fmt: skip
        left = len(self.reasons)
        return {"kept": len(people) - left, "left_out": left, "people": people}


def read_participants(path: Path, rules: QualityRules | None = None) -> Participants:
    """People of a CSV of trials, or of a folder of those that the page saved, and why some are left out.

    Columns ``rt`` (ms), ``away_s``, ``bot`` and ``recruited`` are used where they are there: a rule whose
    column is missing leaves nobody out. The same file twice counts once; of two visits under one number of a
    recruiting service the first one counts.

    Raises: BadInput as the reader of trials, or for a folder without a CSV.
    """
    found: dict[str, list[dict[str, str]]] = {}
    columns: dict[str, None] = {}
    sources = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    for file in sources:
        names, rows = read_rows(file)
        columns |= dict.fromkeys(names)
        people: dict[str, list[dict[str, str]]] = {}
        for _, row in rows:
            people.setdefault(row["subject_id"], []).append(row)
        for person, own in people.items():
            if found.setdefault(person, own) != own:
                raise BadInput(f"{person!r} has other choices in another file", where=str(file))
    if not found:
        raise BadInput("there are no trials", where=str(path))
    wanted, reasons = rules or QualityRules(), {}
    came: set[str] = set()
    for person, own in found.items():
        number = own[0].get("recruited", "")
        # People who came by no recruiter's link all have the empty number: they are not one person.
        reason = "came a second time" if number and number in came else None
        # Files are read in the order of their names, and rows in theirs: the first visit is the one kept.
        came.add(number)
        responses = np.asarray([int(row["response"]) for row in own])
        trials = Trials(np.zeros_like(responses), np.zeros_like(responses), responses)
        reason = reason or wanted.reason(trials, session_of(own))
        if reason is not None:
            reasons[person] = reason
    return Participants(tuple(columns), found, reasons)


def session_of(rows: list[dict[str, str]]) -> Session:
    """What was recorded of a person beside the choices; None for a column that is not there."""

    def numbers(name: str) -> list[float]:
        return [float(row[name]) for row in rows if row.get(name)]

    times, away, bot = numbers("rt"), numbers("away_s"), numbers("bot")
    return Session(
        sum(times) / len(times) if times else None, max(away, default=None), any(bot) if bot else None
    )
