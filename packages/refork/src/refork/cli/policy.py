"""``refork policy``: who acts, and what it can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, print_json

if TYPE_CHECKING:
    from refork.policies.base import Policy, PolicyCard

app = typer.Typer(help="Look at policies: local models, servers and scripts.", no_args_is_help=True)

Spec = Annotated[str, typer.Argument(help="hf:DIR, organism:NAME, openai:URL#MODEL or scripted:NAME.")]

_MEANING = {
    "tokens": "takes and returns token ids: forks inside a turn",
    "logprobs": "log-probs of what it samples",
    "scores": "log-probs of given tokens",
    "paired": "equal noise gives equal draws",
    "whitebox": "hidden states",
}


@app.command("list")
def list_policies(as_json: AsJson = False) -> None:
    """List the installed kinds of policies, names that stand for policies, and scripts.

    Example: ``refork policy list``
    """
    from refork.registry import Kind, described

    kinds: tuple[Kind, ...] = ("policies", "policy_names", "scripts")
    found = [(kind, one) for kind in kinds for one in described(kind)]
    forms = [f"scripted:{one.form}" if kind == "scripts" else one.form for kind, one in found]
    if as_json:
        rows = zip(forms, found, strict=True)
        print_json(
            [
                {"kind": kind, "name": one.name, "spec": form, "what": one.what, "package": one.package}
                | {"lacks": one.lacks}
                for form, (kind, one) in rows
            ]
        )
        return
    width = max(map(len, forms))
    for form, (_, one) in zip(forms, found, strict=True):
        typer.echo(f"{form:<{width}}  {one.description}")


@app.command()
def show(spec: Spec, as_json: AsJson = False) -> None:
    """Print a policy's card: name, digests, capabilities.

    Example: ``refork policy show scripted:coin``
    """
    card = _open(spec).card
    if as_json:
        print_json(card.to_json())
    else:
        _print_card(card)


@app.command()
def probe(
    spec: Spec,
    prompt: Annotated[str, typer.Option(help="What to let it go on from.")] = "Once upon a time",
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw twice from a policy with equal noise and check that what its card says holds.

    Exits with status 1 where it does not.

    Example: ``refork policy probe scripted:greeter``
    """
    from refork.policies.probe import probe_policy

    policy = _open(spec)
    found = probe_policy(policy, prompt, seed=seed)
    if as_json:
        print_json({"policy": policy.card.to_json()} | found.to_json())
    else:
        _print_card(policy.card)
        typer.echo(f"says         {found.text!r} ({found.finish})")
        for name, good in found.checks.items():
            typer.echo(f"{'ok' if good else 'WRONG':<12} {name}")
    if not all(found.checks.values()):
        raise typer.Exit(1)


def _open(spec: str) -> Policy:
    from refork.policies.open import open_policy

    return open_policy(spec, on_wait=lambda reason: typer.echo(reason, err=True))


def _print_card(card: PolicyCard) -> None:
    rows = {
        "name": card.name,
        "kind": card.kind,
        "weights": card.weights or "not known",
        "tokenizer": card.tokenizer or "not known",
        "vocabulary": card.vocabulary if card.vocabulary is not None else "not known",
        "context": card.context if card.context is not None else "not known",
    }
    for name, value in (rows | card.extra).items():
        typer.echo(f"{name:<14} {value}")
    for name, meaning in _MEANING.items():
        typer.echo(f"{name:<14} {'yes' if card.can(name) else 'no ':<4} {meaning}")
