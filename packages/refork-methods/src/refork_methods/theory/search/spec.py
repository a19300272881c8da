"""A theory as the record holds it: a form of the grammar, a rule by its name, or its own YAML."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from refork.errors import BadInput
from refork.plain import content_hash
from refork.sandbox import Sandbox
from refork.types import Json
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.grammar import Domain, Form
from refork_methods.theory.open import rule_named, seed_theory
from refork_methods.theory.sandboxed import SandboxedTheory
from refork_methods.theory.theory_file import Theory


@final
@dataclass(frozen=True, slots=True)
class TheorySpec:
    """One of ``form`` (options of the domain's grammar), ``rule`` (a name) and ``yaml`` (a text).

    Raises: BadInput for none or more than one of them.
    """

    form: Form | None = None
    rule: str | None = None
    yaml: str | None = None

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.form, self.rule, self.yaml)) != 1:
            raise BadInput("a theory is a form, a rule or a YAML text")

    def to_json(self) -> Json:
        """Plain JSON."""
        parts: dict[str, Any] = {"form": self.form, "rule": self.rule, "yaml": self.yaml}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in parts.items() if v is not None}

    @classmethod
    def from_json(cls, data: Json) -> TheorySpec:
        """Inverse of :meth:`to_json`."""
        form = data.get("form")
        return cls(None if form is None else tuple(form), data.get("rule"), data.get("yaml"))

    @property
    def digest(self) -> str:
        """Digest of what it says."""
        return content_hash(self.to_json())

    def form_in(self, domain: Domain) -> Form | None:
        """The form it is, where the grammar can say it."""
        return self.form if self.rule is None else domain.grammar.known.get(self.rule)

    def title(self, domain: Domain) -> str:
        """What to call it beside its label."""
        if self.form is not None:
            return domain.grammar.title(self.form)
        return self.rule or Theory.from_yaml(self.yaml or "").name

    def theory(self, domain: Domain) -> Theory | None:
        """The theory as text; None for a rule of ours that has none."""
        if self.yaml is not None:
            return Theory.from_yaml(self.yaml)
        form = self.form_in(domain)
        return None if form is None else domain.grammar.theory(form, self.title(domain))

    def chooser(self, label: str, domain: Domain, sandbox: Sandbox) -> Chooser:
        """The theory under a label, ready to be run: forms and rules on arrays, YAML in the sandbox.

        Raises: BadInput for what is no theory of the domain.
        """
        if self.form is not None:
            return domain.grammar.rule(self.form, label)
        if self.rule is not None:
            return replace(rule_named(self.rule, domain.name), name=label)
        theory = Theory.from_yaml(self.yaml or "")
        if theory.domain != domain.name:
            raise BadInput(f"theory {theory.name!r} is about {theory.domain}, not about {domain.name}")
        return SandboxedTheory(replace(theory, name=label), sandbox)


def spec_of(text: str, domain: Domain) -> TheorySpec:
    """What a user names: a YAML file, ``seed:NAME``, ``form:A,B,...``, or a rule. Raises BadInput."""
    if text.startswith("form:"):
        return TheorySpec(form=domain.grammar.check(text.removeprefix("form:").split(",")))
    if text.startswith("seed:"):
        return TheorySpec(yaml=seed_theory(text.removeprefix("seed:")).to_yaml())
    if text.endswith((".yaml", ".yml")):
        return TheorySpec(yaml=Theory.read(text).to_yaml())
    return TheorySpec(rule=rule_named(text, domain.name).name)
