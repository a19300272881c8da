"""The scientist that is a chat model: it is told all that a view holds, and answers with one JSON object.

What it writes is checked field by field, and asked for again with what was wrong; what stays wrong is a
:class:`Fault`. Its theories and statistics run in the sandbox alone. Words of the prompts are ours.

Source: arXiv:2606.26448 for the roles; one model in all of them, the ``done`` answer in place of a critic
model, and strict answers are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar, final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refork.chat import ChatModel
from refork.errors import BadInput, UserError
from refork.plain import canonical, content_hash
from refork.types import Json, Message
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.scientist import (
    Candidate,
    Designed,
    Fault,
    Judged,
    Proposed,
    Revised,
    Ruled,
    View,
)
from refork_methods.theory.search.spec import TheorySpec
from refork_methods.theory.search.statistic import Statistic, metric_of
from refork_methods.theory.theory_file import Theory

M = TypeVar("M", bound=BaseModel)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Design(_Answer):
    experiment: dict[str, Any]
    statistics: list[Statistic] = Field(min_length=1, max_length=8)
    why: str


class _Verdict(_Answer):
    ruling: Literal["new_model", "new_theory"]
    target: Literal[1, 2]
    why: str


class _Revision(_Answer):
    name: str
    predict: str
    theory: str | None = None
    policy: str | None = None
    parameters: dict[str, str | float | int] = {}
    rationale: str | None = None


class _Done(_Answer):
    done: Literal[True]


def _read(kind: type[M], body: Json) -> M:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise BadInput(f"{place}: {first['msg']}") from error


def read_design(body: Json, view: View) -> Designed:
    """An experiment of the domain with statistics that fit it.

    Raises: BadInput for what does not fit, an experiment that people cannot answer any more.
    """
    found = _read(_Design, body)
    experiment = view.domain.read(found.experiment, "experiment")
    offered = view.offers
    if offered is not None:
        digest = content_hash(experiment.to_json())
        if digest not in {content_hash(one.to_json()) for one in offered}:
            raise BadInput("people can answer only the experiments on offer", hint="copy one of them")
    for one in found.statistics:
        metric_of(one, experiment, view.sandbox)
    return Designed(experiment, tuple(found.statistics), found.why)


def read_verdict(body: Json) -> Judged:
    """A verdict. Raises BadInput."""
    found = _read(_Verdict, body)
    return Judged(Verdict(found.ruling, found.target), found.why)


def read_revision(body: Json, view: View, verdict: Verdict, *, may_end: bool) -> TheorySpec | None:
    """A theory; None for ``{"done": true}``, where there is one already.

    A revision of the model keeps the prose of the theory that it revises. Raises BadInput.
    """
    if "done" in body:
        _read(_Done, body)
        if not may_end:
            raise BadInput("nothing was accepted yet, so this cannot be the end")
        return None
    found = _read(_Revision, body)
    prose = found.theory
    if verdict.ruling == "new_model":
        old = view.theories[view.slots[verdict.target - 1]].theory(view.domain)
        prose = old.theory if old is not None else prose
    if prose is None:
        raise BadInput("theory: a new theory needs its prose")
    told = {**found.model_dump(exclude_none=True), "theory": prose, "domain": view.domain.name}
    text = yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
    return TheorySpec(yaml=Theory.from_yaml(text, "the answer").to_yaml())


SYSTEM: Final = """\
You do experimental psychology of choice. A theory is executable: `predict(parameters, stimulus, history)`
returns [P(A), P(B)], and parameters are drawn from priors once for each simulated person. Nothing is fitted:
a theory is as good as what its priors predict. Answer with one JSON object in a ```json block, with exactly
the fields that are asked for."""

DESIGN: Final = """\
You advocate one theory. Propose an experiment in which it should be right and its rival wrong, and up to four
statistics of people's choices that would show it. It is used only if simulated people of the two theories
differ in a statistic beyond chance, by Welch's test at the number of people who will take part.
Fields: "experiment" (as described), "statistics" (a list), "why" (one sentence). A statistic is one of
{"kind": "share_of_b"}, {"kind": "switch_rate"}, {"kind": "lag_one"},
{"kind": "share_of_b_at", "stimuli": [0, 3]},
{"kind": "agreement", "name": "...", "sides": [1, -1, 0, ...]} (a number for each pair: above 0 expects B),
{"kind": "code", "name": "...", "source": "def metric(trials): ..."}; trials is a tuple, in trial order, of
{"stimulus": {...}, "number": 0, "response": 0 or 1}. A statistic must be defined for one person alone."""

VERDICT: Final = """\
You are the arbiter. Two theories stand; people have chosen. Say which one loses its place.
Fields: "ruling": "new_model" (its prose is right, its code or priors are wrong) or "new_theory" (its idea is
wrong), "target": 1 or 2 (the slot that loses), "why" (at most three sentences). Prefer ideas that hold across
experiments to ones that fit a single one."""

REVISION: Final = """\
You write the successor of a theory. It must come near to what people chose in all experiments so far, from
its priors alone. Fields: "name", "theory" (prose; left out for a new model of the same theory), "parameters"
(name to prior: "[lo, hi]" uniform, "{a, b}" one of the values, "[(lo, hi)] * n" a list, a number), "predict"
(Python source), "policy" (optional source of policy(probabilities, noise) -> 0 or 1), "rationale" (optional).
`history` is a tuple of {"stimulus", "response"}, oldest first. Of modules only math is there; no files, no
network, no chance, no state between calls. If nothing better comes to mind after a candidate was accepted,
answer {"done": true}."""

#: Observations and candidates shown in full.
_SHOWN: Final = 10
_BEST: Final = 3


def design_question(view: View, side: int, refused: Sequence[str]) -> str:
    """What an advocate is told."""
    mine, other = view.slots[side - 1], view.slots[2 - side]
    parts = [view.domain.words, f"Your theory:\n{_theory(view, mine)}", f"Its rival:\n{_theory(view, other)}"]
    parts.append(
        f"{view.settings.people} people will take part; the level is {view.settings.alpha:g}, shared among "
        f"{view.settings.attempts} tests."
    )
    if view.offers is not None:
        lines = "\n".join(canonical(one.to_json()) for one in view.offers)
        parts.append(f"People can answer only one of these experiments; copy one unchanged:\n{lines}")
    parts += _past(view)
    if refused:
        parts.append("Refused in this round:\n" + "\n".join(f"- {one}" for one in refused))
    return "\n\n".join(parts)


def verdict_question(view: View) -> str:
    """What the arbiter is told."""
    slots = [f"Slot {at}, {label}:\n{_theory(view, label)}" for at, label in enumerate(view.slots, 1)]
    return "\n\n".join([view.domain.words, *slots, *_past(view), _board(view)])


def revision_question(view: View, verdict: Verdict, tried: Sequence[Candidate]) -> str:
    """What the writer of a successor is told."""
    label = view.slots[verdict.target - 1]
    wanted = "a new model of the same theory" if verdict.ruling == "new_model" else "a new theory"
    parts = [view.domain.words, f"Write {wanted} in place of {label}:\n{_theory(view, label)}"]
    parts += [*_past(view), _board(view)]
    scored = sorted((one for one in tried if one.loss is not None), key=lambda one: one.loss or 0.0)[:_BEST]
    for one in scored:
        state = "accepted" if one.accepted else "not better than the best before it"
        text = one.spec.theory(view.domain)
        parts.append(f"Tried, loss {one.loss:.5f}, {state}:\n{'' if text is None else text.to_yaml()}")
    failed = [one for one in tried if one.loss is None][-_BEST:]
    if failed:
        parts.append("Could not be run:\n" + "\n".join(f"- {one.why}" for one in failed))
    return "\n\n".join(parts)


def _theory(view: View, label: str) -> str:
    found = view.theories[label].theory(view.domain)
    return found.to_yaml() if found is not None else f"{view.theories[label].title(view.domain)} (no source)"


def _past(view: View) -> list[str]:
    """Experiments so far, what people chose, and what each theory predicted."""
    found = []
    first = max(0, len(view.observed) - _SHOWN)
    for place, one in enumerate(view.observed[first:], first):
        lines = [
            f"Experiment {one.name}: {canonical(one.observation.experiment.to_json())}",
            f"People's share of B, pair by pair: {[round(float(x), 3) for x in one.rates]}",
            f"Statistic {one.metric.name!r}: people {one.real:.4f}",
        ]
        for label, rows in view.predicted.items():
            row = rows[place]
            value = "undefined" if row.value is None else f"{row.value:.4f}"
            lines.append(f"  {label}: {value}; squared error of the shares {row.mse_pb:.4f}")
        found.append("\n".join(lines))
    return found


def _board(view: View) -> str:
    rows = sorted(view.losses.items(), key=lambda pair: pair[1])
    return "Loss over all experiments:\n" + "\n".join(f"  {label}: {value:.5f}" for label, value in rows)


T = TypeVar("T")
#: Times that an answer is asked for before a role has failed.
ASKED: Final = 3
_FENCE: Final = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


@final
class ChatScientist:
    """All three roles by one chat model.

    A model that gives no answer (ServerError) ends the run where it is; ``resume`` asks again.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._said: list[Json] = []

    @property
    def name(self) -> str:
        """The model's."""
        return f"chat:{self._model.name}"

    def transcript(self) -> list[Json]:
        """Questions and answers since the last call."""
        told, self._said = self._said, []
        return told

    def propose(self, view: View, side: int, refused: Sequence[str]) -> Proposed:
        """An experiment with statistics; a fault where no answer fits."""
        return self._ask(
            DESIGN, design_question(view, side, refused), view, lambda body: read_design(body, view)
        )

    def judge(self, view: View) -> Ruled:
        """A verdict; a fault where no answer fits."""
        return self._ask(VERDICT, verdict_question(view), view, read_verdict)

    def revise(self, view: View, verdict: Verdict, tried: Sequence[Candidate]) -> Revised:
        """A theory as YAML; None where the model is done, a fault where no answer fits."""
        may_end = any(one.accepted for one in tried)
        return self._ask(
            REVISION,
            revision_question(view, verdict, tried),
            view,
            lambda body: read_revision(body, view, verdict, may_end=may_end),
        )

    def _ask(self, role: str, question: str, view: View, read: Callable[[Json], T]) -> T | Fault:
        messages: list[Message] = [
            {"role": "system", "content": f"{SYSTEM}\n\n{role}"},
            {"role": "user", "content": question},
        ]
        why = ""
        for attempt in range(ASKED):
            reply = self._model.reply(messages, draw=_draw(view.key, attempt))
            # A lone surrogate in an answer could not be written into the record.
            text = reply.text.encode("utf-8", "replace").decode()
            # A copy: the list goes on to grow.
            self._said.append({"messages": [dict(one) for one in messages], "reply": text})
            try:
                return read(one_object(text))
            except UserError as error:
                why = str(error)
            cut = " The answer was cut off." if reply.finish == "length" else ""
            messages += [
                {"role": "assistant", "content": text},
                {
                    "role": "user",
                    "content": f"This cannot be used: {why}.{cut} Answer again, with JSON alone.",
                },
            ]
        return Fault(f"no usable answer in {ASKED}: {why}")


def one_object(text: str) -> Json:
    """The one JSON object of an answer: the last fenced block, else the whole text.

    Raises: BadInput for no JSON, or no object.
    """
    from refork.errors import BadInput

    blocks = [body for language, body in _FENCE.findall(text) if language.lower() in ("", "json")]
    try:
        found: Any = json.loads(blocks[-1] if blocks else text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the answer is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput("the answer is no JSON object")
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _draw(key: tuple[int, int, int, int], attempt: int) -> int:
    seed, number, side, place = key
    # A number of its own for every question as long as rounds and tries stay below 1009 (side is 0, 1 or 2).
    return (((seed * 1009 + number) * 3 + side) * 1009 + place) * ASKED + attempt
