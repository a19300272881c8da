"""A grammar of theories: every choice of one option on each axis is a theory that can be run and read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, final

import numpy as np

from refork.errors import BadInput
from refork_methods.theory.chooser import History, Rule
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.priors import Prior, Uniform
from refork_methods.theory.theory_file import Theory

#: One option for each axis, in the axes' order.
Form: TypeAlias = tuple[str, ...]
#: Ranges of the inverse temperature and of the share of blind choices; the first are those published.
STRENGTHS: Final[dict[str, Prior]] = {
    "any": Uniform(0.1, 20), "weak": Uniform(0.1, 3), "strong": Uniform(5, 20),
}  # fmt: skip
LAPSES: Final[dict[str, Prior]] = {
    "some": Uniform(0, 0.5), "few": Uniform(0, 0.1), "many": Uniform(0.5, 1),
}  # fmt: skip
HISTORIES: Final[tuple[History, ...]] = ("none", "repeat", "alternate")
_CARRY: Final = {
    "none": "",
    "repeat": '    if history:\n        gap += 1 if history[-1]["response"] == 1 else -1\n',
    "alternate": '    if history:\n        gap -= 1 if history[-1]["response"] == 1 else -1\n',
}
# math.exp raises OverflowError beyond 709, where expit of the same rule on arrays saturates.
_CHANCE: Final = """\
    z = max(-700.0, min(700.0, parameters["beta"] * gap))
    b = (1 - parameters["lapse"]) / (1 + math.exp(-z)) + parameters["lapse"] / 2
    return [1 - b, b]
"""


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that theories differ in. ``model``: how strongly choices follow, not what counts."""

    name: str
    options: tuple[str, ...]
    model: bool = False


def model_axes() -> tuple[Axis, ...]:
    """The axes that a revision of the model alone may move on."""
    return Axis("strength", tuple(STRENGTHS), True), Axis("lapses", tuple(LAPSES), True)


@final
@dataclass(frozen=True, slots=True)
class Part:
    """What the options of the theory's axes make.

    A rule without its history, prose, and code: functions, and the body of ``predict`` that sets ``gap``.
    """

    rule: Rule
    words: str
    functions: str
    body: str


@final
@dataclass(frozen=True, slots=True)
class Grammar:
    """Axes of a domain, and what they make. ``known``: forms of rules by their names.

    The axes are the domain's own, then ``history``, then the model's.
    """

    domain: str
    own: tuple[Axis, ...]
    part: Callable[[Form], Part | None]
    known: Mapping[str, Form]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes."""
        return (*self.own, Axis("history", HISTORIES), *model_axes())

    def forms(self) -> Iterator[Form]:
        """Every form that says something of its own."""
        return (form for form in itertools.product(*(axis.options for axis in self.axes)) if self.sound(form))

    def sound(self, form: Form) -> bool:
        """Whether the options go together."""
        return self.part(form[: len(self.own)]) is not None

    def core(self, form: Form) -> Form:
        """What makes it this theory: all but the model's axes."""
        return form[: len(self.own) + 1]

    def neighbours(self, form: Form, *, model: bool = False) -> list[Form]:
        """Forms that differ in one axis; with ``model`` in one of the model's."""
        found = []
        for place, axis in enumerate(self.axes):
            if model and not axis.model:
                continue
            for option in axis.options:
                other = (*form[:place], option, *form[place + 1 :])
                if option != form[place] and self.sound(other):
                    found.append(other)
        return found

    def check(self, form: Sequence[str]) -> Form:
        """A form from any sequence. Raises BadInput for options that are none, or do not go together."""
        axes = self.axes
        if len(form) != len(axes):
            raise BadInput(f"{len(form)} options, and the grammar of {self.domain} has {len(axes)} axes")
        for option, axis in zip(form, axes, strict=True):
            if option not in axis.options:
                raise BadInput(f"{axis.name} {option!r}", hint=f"one of {', '.join(axis.options)}")
        found = tuple(form)
        if not self.sound(found):
            raise BadInput(f"the options {', '.join(form)} do not go together")
        return found

    def rule(self, form: Sequence[str], name: str | None = None) -> Rule:
        """The theory on arrays. Raises BadInput as :meth:`check`."""
        found, part = self._parts(form)
        history, strength, lapses = found[len(self.own) :]
        priors = {**part.rule.priors, "lapse": LAPSES[lapses]}
        # "any" keeps the part's own range: the published one of the dial is narrower than that of the others.
        if strength != "any":
            priors["beta"] = STRENGTHS[strength]
        kind: History = next(one for one in HISTORIES if one == history)
        return replace(part.rule, name=name or self.title(found), priors=priors, history=kind)

    def theory(self, form: Sequence[str], name: str | None = None) -> Theory:
        """The same theory as text that runs in the sandbox. Raises BadInput as :meth:`check`."""
        found, part = self._parts(form)
        history = found[len(self.own)]
        rule = self.rule(found)
        head = f"import math\n\n\n{part.functions}" if part.functions else "import math\n\n\n"
        code = f"{head}def predict(parameters, stimulus, history):\n{part.body}{_CARRY[history]}{_CHANCE}"
        carried = {"none": "", "repeat": " They tend to repeat the last choice.",
                   "alternate": " They tend away from the last choice."}[history]  # fmt: skip
        return Theory(name or self.title(found), part.words + carried, code, rule.priors, domain=self.domain)

    def title(self, form: Form) -> str:
        """A form's name: its options."""
        return "-".join(form)

    def _parts(self, form: Sequence[str]) -> tuple[Form, Part]:
        found = self.check(form)
        part = self.part(found[: len(self.own)])
        assert part is not None  # check() has seen to it
        return found, part


@final
@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of choice. Nothing of the loop knows more of it than this.

    ``rules`` are all theories by name, ``ranked`` those scored unless others are asked for. ``design`` draws
    an experiment. ``read`` makes one of plain JSON. ``words`` tell a model what stimuli and designs are.
    """

    name: str
    rules: Mapping[str, Rule]
    ranked: tuple[Rule, ...]
    grammar: Grammar
    design: Callable[[np.random.Generator], Experiment]
    read: Callable[[Mapping[str, Any], str | None], Experiment]
    words: str
