"""``Theory``: a theory as text, in YAML: prose, the code of ``predict`` and ``policy``, and priors."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from refork.errors import BadInput
from refork.plain import content_hash
from refork.sandbox import refusal
from refork_methods.theory.priors import Prior, parse_prior

#: What a theory's functions take. ``noise`` is a uniform number in [0, 1): a policy draws nothing itself.
PREDICT: Final = ("parameters", "stimulus", "history")
POLICY: Final = ("probabilities", "noise")
#: Names that would differ between processes: a theory must be a function of what it is given.
UNSTABLE: Final = frozenset({"hash", "id", "object"})
RESERVED: Final = "refork_"
SAMPLE: Final = """\
def policy(probabilities, noise):
    return 1 if noise < probabilities[1] else 0
"""
_EXAMPLE: Final = "def predict(parameters, stimulus, history): return [0.5, 0.5]"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    theory: str
    predict: str
    domain: str = "cues"
    policy: str | None = None
    parameters: dict[str, Any] = {}
    rationale: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Theory:
    """A theory that was read and checked; its code has not run.

    ``predict`` and ``policy`` are Python sources; ``parameters`` maps names to priors. The checks are of
    form: that the code parses, defines the function with its arguments, and holds nothing that the sandbox
    refuses. What it returns is checked when it runs (:mod:`refork_methods.theory.sandboxed`).

    Raises: BadInput naming the part that does not fit.
    Source: arXiv:2606.26448 (code); a policy that is given its noise is ours.
    """

    name: str
    theory: str
    predict: str
    parameters: Mapping[str, Prior] = field(default_factory=dict)
    policy: str = SAMPLE
    domain: str = "cues"
    rationale: str | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise BadInput("a theory needs a name")
        where = f"theory {self.name!r}"
        for part, source, wanted in (("predict", self.predict, PREDICT), ("policy", self.policy, POLICY)):
            _check_function(part, source, wanted, where)
        twice = _defined(self.predict) & _defined(self.policy)
        if twice:
            raise BadInput(f"predict and policy both define {min(twice)!r}", where=where, hint="rename one")
        for name in self.parameters:
            if not name.isidentifier():
                raise BadInput(f"a parameter is called {name!r}", where=where, hint="use a plain name")

    @property
    def source(self) -> str:
        """Both functions as one source."""
        return f"{self.predict.rstrip()}\n\n\n{self.policy.rstrip()}\n"

    @property
    def digest(self) -> str:
        """Digest of what the theory says and does; its name and rationale do not count."""
        priors = {name: prior.text() for name, prior in self.parameters.items()}
        return content_hash([self.domain, self.theory, self.predict, self.policy, priors])

    @property
    def reads_history(self) -> bool:
        """Whether ``predict`` names its history at all."""
        for node in ast.walk(ast.parse(self.predict)):
            # The third argument may have any name. A false alarm only costs time; a miss would be wrong.
            if isinstance(node, ast.Name) and node.id == _third(self.predict):
                return True
        return False

    @classmethod
    def from_yaml(cls, text: str, where: str | None = None) -> Theory:
        """A theory from YAML: name, theory, predict; domain, policy, parameters and rationale if given.

        Raises: BadInput for no YAML, an unknown or missing field, or as the class.
        """
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise BadInput(f"not YAML: {' '.join(str(error).split())}", where=where) from error
        try:
            file = _File.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the theory"
            known = ", ".join(_File.model_fields)
            raise BadInput(f"{place}: {first['msg']}", where=where, hint=f"fields: {known}") from error
        place = where or f"theory {file.name!r}"
        priors = {name: parse_prior(spec, f"{place}, {name}") for name, spec in file.parameters.items()}
        policy = SAMPLE if file.policy is None else file.policy
        return cls(file.name, file.theory, file.predict, priors, policy, file.domain, file.rationale)

    @classmethod
    def read(cls, path: Path | str) -> Theory:
        """A theory from a YAML file. Raises BadInput for no such file, and as :meth:`from_yaml`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the theory cannot be read: {error}", where=str(path)) from error
        return cls.from_yaml(text, str(path))

    def to_yaml(self) -> str:
        """The theory as YAML; :meth:`from_yaml` reads it back."""
        fields: dict[str, Any] = {
            "name": self.name,
            "domain": self.domain,
            "theory": self.theory,
            "parameters": {name: prior.text() for name, prior in self.parameters.items()},
            "predict": self.predict,
            "policy": self.policy,
        }
        if self.rationale is not None:
            fields["rationale"] = self.rationale
        return yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that code stays readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _defined(source: str) -> set[str]:
    """Functions and constants of a source: both sources share one namespace."""
    body = ast.parse(source).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return functions | {target.id for target in targets if isinstance(target, ast.Name)}


def _third(source: str) -> str:
    function = next(
        n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "predict"
    )
    return function.args.args[2].arg


def _check_function(part: str, source: str, wanted: tuple[str, ...], where: str) -> None:
    if reason := refusal(source):
        raise BadInput(f"the code of {part} may not run: {reason}", where=where)
    tree = ast.parse(source)
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    function = next((node for node in defined if node.name == part), None)
    if function is None:
        raise BadInput(
            f"the code of {part} defines no function {part!r}", where=where, hint=f"as in {_EXAMPLE}"
        )
    args = function.args
    plain = not (args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults)
    if not plain or len(args.args) != len(wanted):
        raise BadInput(f"{part} must take ({', '.join(wanted)})", where=where)
    for node in ast.walk(tree):
        name = (
            node.id if isinstance(node, ast.Name) else node.name if isinstance(node, ast.FunctionDef) else ""
        )
        if name in UNSTABLE:
            raise BadInput(f"{part} uses {name!r}, which is not the same in every process", where=where)
        if name.startswith(RESERVED):
            raise BadInput(f"{part} uses {name!r}; names of {RESERVED}* are taken", where=where)
