"""A study as one document: what a page needs to run an experiment, as plain JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, final

from refork.errors import BadInput
from refork.plain import content_hash
from refork.types import Json
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.experiment import TRIALS, Experiment, repeats, trial_orders
from refork_methods.theory.gambles.experiment import GambleExperiment
from refork_methods.theory.people.codes import Completion, require_https
from refork_methods.theory.people.recruiter import RECRUITERS
from refork_methods.theory.people.texts import Texts, default_texts, filled

#: Version of the document and of the results.
VERSION: Final = 1
#: Trials that one person may be shown.
MOST_TRIALS: Final = 2000
#: Milliseconds of an empty screen between two pairs.
GAP_MS: Final = 250
KEYS: Final = {"a": ["f", "arrowleft"], "b": ["j", "arrowright"]}
#: ``server``: every answer is sent at once; ``file``: they stay in the browser until the end.
Mode: TypeAlias = Literal["server", "file"]


@final
@dataclass(frozen=True, slots=True)
class Study:
    """An experiment with all that people are shown beside it.

    ``trials``: how many choices one person makes, as far as whole repetitions of the pairs go. ``seed``:
    of the orders of the pairs. ``post``: where a page without a server sends the answers at its end; None:
    the person saves them as a file. ``rehearsal``: the theory whose simulations stand in for people.

    Raises: BadInput for an experiment without a page, or settings out of range.
    """

    experiment: Experiment
    texts: Texts
    name: str = "study"
    trials: int = TRIALS
    seed: int = 0
    completion: Completion = field(default_factory=Completion)
    post: str | None = None
    rehearsal: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.experiment, CueExperiment | GambleExperiment):
            raise BadInput(f"there is no page for the domain {self.experiment.domain!r}")
        if not self.name.strip() or len(self.name) > 200:
            raise BadInput("the study's name is empty or longer than 200 signs")
        if not 1 <= self.trials <= MOST_TRIALS or self.total > MOST_TRIALS:
            raise BadInput(f"{max(self.trials, self.total)} trials a person", hint=f"1 to {MOST_TRIALS}")
        if self.seed < 0:
            raise BadInput(f"the seed is {self.seed}; it must be 0 or more")
        if self.post is not None:
            require_https(self.post)

    @classmethod
    def of(cls, experiment: Experiment, **settings: Any) -> Study:
        """A study with the texts of the experiment's domain unless ``texts`` are given."""
        texts = settings.pop("texts", None) or default_texts(experiment.domain)
        return cls(experiment, texts, **settings)

    @property
    def total(self) -> int:
        """Choices that one person makes."""
        return self.experiment.stimuli * repeats(self.experiment.stimuli, self.trials)

    @property
    def digest(self) -> str:
        """What two runs must share for their answers to be of one study: design, trials and seed."""
        return content_hash(self.header()["design"])

    @property
    def texts_digest(self) -> str:
        """Which texts somebody agreed to."""
        return content_hash(self.texts.to_json())

    def header(self) -> Json:
        """What results begin with."""
        design = {"experiment": self.experiment.to_json(), "trials": self.trials, "seed": self.seed}
        if self.rehearsal is not None:
            design["rehearsal"] = self.rehearsal
        return {"version": VERSION, "name": self.name, "design": design, "digest": content_hash(design)}

    def order(self, number: int) -> list[int]:
        """The pairs that the person of a number (from 0) is shown, in their order."""
        orders = trial_orders(self.experiment, number + 1, self.seed, trials=self.trials)
        found: list[int] = orders[number].tolist()
        return found


def document(study: Study, mode: Mode) -> Json:
    """What the page is given. In mode ``file`` it holds the study's completion code, too."""
    texts = filled(study.texts, study.experiment, study.total)
    consent = texts["consent"]
    plain, sealed = consent.pop("recruited_plain"), consent.pop("recruited_sealed")
    consent["collected"] = [*consent["collected"], plain if mode == "file" else sealed]
    found = {
        "version": VERSION,
        "mode": mode,
        "study": study.digest,
        "texts_digest": study.texts_digest,
        "total": study.total,
        "keys": KEYS,
        "gap_ms": GAP_MS,
        "recruiters": [names.to_json() for names in RECRUITERS],
        "texts": texts,
        **_pairs_json(study.experiment),
    }
    if mode == "file":
        code, address = study.completion.code, study.completion.way_back("{code}", None)
        prolific = None if code is None else study.completion.way_back(code, "prolific")
        found |= {"header": study.header(), "code": code, "post": study.post}
        found |= {"return": {"any": address, "prolific": prolific}}
    return found


def _pairs_json(experiment: Experiment) -> Json:
    """The pairs as the page draws them."""
    pairs = [experiment.stimulus(index) for index in range(experiment.stimuli)]
    shown: Json = {
        "domain": experiment.domain,
        "stimuli": [{"a": pair["a"], "b": pair["b"]} for pair in pairs],
    }
    if isinstance(experiment, CueExperiment):
        shown |= {"validities": list(experiment.validities), "binary": experiment.binary}
    return shown
