"""Theories by what a user calls them: a name, a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refork.errors import BadInput
from refork.sandbox import Sandbox
from refork_methods.theory.chooser import Chooser, Rule
from refork_methods.theory.domains import DOMAINS, domain_named
from refork_methods.theory.sandboxed import SandboxedTheory
from refork_methods.theory.theory_file import Theory


def rule_named(name: str, domain: str | None = None) -> Rule:
    """One of the rules that come along, of a domain or of any. Raises BadInput for another name."""
    wanted = [domain_named(domain)] if domain else DOMAINS.values()
    # Every domain has a rule `random`: reversed, so that the first domain's is the one kept.
    known = {name: rule for one in reversed(list(wanted)) for name, rule in one.rules.items()}
    if name not in known:
        raise BadInput(f"no theory {name!r}", hint=f"a YAML file, seed:NAME, or one of {', '.join(known)}")
    return known[name]


def seed_theory(name: str) -> Theory:
    """A theory of the grammars as text: to be run in the sandbox, edited, or put beside a user's own.

    Raises: BadInput for a name that no grammar knows.
    """
    for one in DOMAINS.values():
        if name in one.grammar.known:
            made = one.grammar.theory(one.grammar.known[name], name)
            return _counting(made) if name == "tallying" else made
    names = ", ".join(known for one in DOMAINS.values() for known in one.grammar.known)
    raise BadInput(f"no theory {name!r} comes along as text", hint=f"one of {names}")


def _counting(added_up: Theory) -> Theory:
    """Tallying: a cue counts once, whatever its ratings, where the form of equal weights adds ratings up."""
    code = added_up.predict.replace("1.0 * (b - a)", "((b > a) - (a > b))")
    assert code != added_up.predict
    words = "People count the cues that speak for each option, whatever their validity."
    return replace(added_up, theory=words, predict=code)


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
    return [open_theory(one, sandbox, domain) for one in specs] or list(domain_named(domain).ranked)
