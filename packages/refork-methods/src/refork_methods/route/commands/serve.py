"""``refork route serve``: a pool behind one model name, as an OpenAI-compatible server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AllowHost, AllowOrigin, Port, existing
from refork.errors import BadInput

if TYPE_CHECKING:
    from refork.chat import ChatModel
    from refork.serve.opening import Opened
    from refork_methods.route.pool import WorkerPool
    from refork_methods.route.routed import Chooser


def serve_command(
    pool: Annotated[Path, typer.Argument(help="The pool file (TOML).")],
    head: Annotated[Path | None, typer.Option("--head", help="Folder of a fitted selection head.")] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="The local model (hf:DIR) that the head reads.")
    ] = None,
    worker: Annotated[
        str | None, typer.Option("--worker", help="Always this worker, without a head.")
    ] = None,
    conductor: Annotated[
        str | None,
        typer.Option("--conductor", help="A policy that writes workflows for the pool, in place of a head."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The one model name that clients see.")] = "refork",
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; only this machine by default.")
    ] = "127.0.0.1",
    port: Port = 8000,
    lanes: Annotated[int, typer.Option("--lanes", min=1, help="Calls at the same time.")] = 1,
    retries: Annotated[
        int, typer.Option("--retries", min=0, help="Next best workers to try where one gives no answer.")
    ] = 1,
    log: Annotated[
        Path | None, typer.Option("--log", help="File for the decisions; see route explain.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            envvar=["REFORK_SERVER_KEY", "RAMIFY_SERVER_KEY"],
            help="API key that clients must send; none: open.",
        ),
    ] = None,
    hosts: AllowHost = [],  # noqa: B006
    origins: AllowOrigin = [],  # noqa: B006
) -> None:
    """Serve a pool of workers under one model name; each call goes to the worker that the head picks.

    Any OpenAI client can ask it, at http://HOST:PORT/v1; each choice says under ``refork`` who answered and
    why. With --conductor each call is a workflow. Ctrl-C ends it once running answers are given.

    Example: refork route serve pool.toml --head heads/first --backbone hf:models/qwen3-0.6b --log calls.jsonl
    """
    from refork.serve import serve
    from refork.serve.settings import ServerSettings
    from refork_methods.route.pool_io import read_pool

    if sum(one is not None for one in (head, worker, conductor)) != 1:
        raise BadInput(
            "say who picks the worker",
            hint="one of --head DIR --backbone hf:DIR, --worker NAME, or --conductor POLICY",
        )
    if conductor is not None and log is not None:
        raise BadInput("a conductor makes no decisions to log", hint="what ran is in each answer")
    workers = read_pool(existing(pool))
    if conductor is not None:
        model = conductor_for(workers, conductor)
    else:
        model = router_for(workers, head, backbone, worker, name, retries, log)

    def ready(address: str) -> None:
        typer.echo(f"{len(workers.open)} workers behind {name!r} at {address}", err=True)

    keys = frozenset() if key is None else frozenset({key})
    settings = ServerSettings(
        host=host, port=port, keys=keys, hosts=frozenset(hosts), origins=frozenset(origins), lanes=lanes
    )
    serve({name: model}, settings, ready=ready)


def conductor_for(pool: WorkerPool, spec: str) -> ChatModel:
    """Who writes a workflow for every call."""
    from refork.chat import PolicyChat
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork.policies.open import open_policy, spell
    from refork_methods.route.conduct.conductor import Conductor

    with LiveProgress() as live:
        policy = open_policy(spell(spec, live))
    return Conductor(PolicyChat(policy, Sampling(temperature=0.0)), pool)


def router_for(
    pool: WorkerPool,
    head: Path | None,
    backbone: str | None,
    worker: str | None,
    name: str,
    retries: int,
    log: Path | None,
) -> ChatModel:
    """The pool as one model that logs its decisions."""
    from refork_methods.route.decision import DecisionLog
    from refork_methods.route.routed import RoutedChat

    chooser = chooser_for(pool, head, backbone, worker)
    return RoutedChat(pool, chooser, name=name, retries=retries, log=DecisionLog(log))


def chooser_for(pool: WorkerPool, head: Path | None, backbone: str | None, worker: str | None) -> Chooser:
    """Who picks: a head with its backbone, or always one worker."""
    from refork_methods.route.routed import always, head_chooser

    if worker is not None:
        return always(pool, worker)
    assert head is not None
    from refork.policies.open import open_policy
    from refork_methods.route.backbone import RouterBackbone
    from refork_methods.route.card import load_head

    if backbone is None:
        raise BadInput("a head reads a model's hidden state", hint="--backbone hf:DIR")
    fitted, card = load_head(head)
    if card.format is None:
        raise BadInput(
            "this head was fitted on a table's features, which a live conversation does not have",
            where=str(head),
            hint="fit one on texts: refork route fit TABLE --backbone hf:DIR",
        )
    form = card.format
    reader = RouterBackbone(
        open_policy(backbone), rendering=form.rendering, token_index=form.token_index, layer=form.layer,
        window=form.window,
    )  # fmt: skip
    return head_chooser(fitted, reader, pool)


def pool_for(item: str, head: Path | None, backbone: str | None, worker: str | None) -> Opened:
    """The pool of ``[NAME=]FILE`` as one of a server's models.

    Raises:
        BadInput: no such pool, or not one way of choosing its worker.
    """
    from refork.serve.opening import Opened, named
    from refork_methods.route.pool_io import read_pool

    if (head is None) == (worker is None):
        raise BadInput("say who picks the worker", hint="--head DIR --backbone hf:DIR, or --worker NAME")
    name, file = named(item)
    workers = read_pool(existing(Path(file)))
    called = name or "refork"
    model = router_for(workers, head, backbone, worker, called, 1, None)
    who = f"always {worker}" if worker is not None else f"chosen by {head}"
    return Opened(called, model, f"{file}, {len(workers.open)} workers, {who}")


def register(app: typer.Typer) -> None:
    """Add the verb to ``refork route``."""
    app.command("serve")(serve_command)
