"""Theories and people's choices by what a user calls them: a name, a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refork.errors import BadInput
from refork.sandbox import Sandbox
from refork_methods.theory.chooser import Chooser, Rule
from refork_methods.theory.domains import DOMAINS, domain_named
from refork_methods.theory.gambles.read import is_gambles, read_csv_gambles
from refork_methods.theory.people.results import is_results, read_people
from refork_methods.theory.read import Foreign, Read, read_csv_trials, read_human_choices
from refork_methods.theory.sandboxed import SandboxedTheory
from refork_methods.theory.seeds import seed_theory
from refork_methods.theory.theory_file import Theory


def rule_named(name: str, domain: str | None = None) -> Rule:
    """One of the rules that come along, of a domain or of any. Raises BadInput for another name."""
    wanted = [domain_named(domain)] if domain else list(DOMAINS.values())
    known = [rule for one in wanted for rule in one.rules()]
    for rule in known:
        if rule.name == name:
            return rule
    names = ", ".join(dict.fromkeys(rule.name for rule in known))
    raise BadInput(f"no theory {name!r}", hint=f"a YAML file, seed:NAME, or one of {names}")


def open_theory(spec: str, sandbox: Sandbox, domain: str | None = None) -> Chooser:
    """A theory: a YAML file, ``seed:NAME`` of those that come along as YAML, or the name of a rule.

    Code of YAML theories runs in the sandbox alone.

    Raises: BadInput for a name or file that is none, or a theory of another domain.
    """
    if spec.startswith("seed:"):
        found: Chooser = SandboxedTheory(seed_theory(spec.removeprefix("seed:")), sandbox)
    elif spec.endswith((".yaml", ".yml")):
        found = SandboxedTheory(Theory.read(spec), sandbox)
    else:
        return rule_named(spec, domain)
    if domain is not None and found.domain != domain:
        raise BadInput(f"theory {found.name!r} is about {found.domain}, not about {domain}", where=spec)
    return found


def open_theories(specs: Sequence[str], sandbox: Sandbox, domain: str) -> list[Chooser]:
    """Several, or those of a domain that are ranked unless others are asked for."""
    return [open_theory(one, sandbox, domain) for one in specs] or list(domain_named(domain).ranked())


def read_choices(path: Path, *, foreign: Foreign = "drop", validities: Sequence[float] | None = None) -> Read:
    """People's choices: of the page, published JSON lines (``.jsonl``, ``.jsonl.gz``), or a CSV of trials.

    Raises: BadInput as the readers.
    """
    if is_results(path):
        return read_people(path)
    if is_gambles(path):
        return Read(read_csv_gambles(path), {})
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        if validities is not None:
            raise BadInput("the file names its validities itself", where=str(path))
        return read_human_choices(path, foreign=foreign)
    return read_csv_trials(path, validities=validities)
