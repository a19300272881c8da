"""``refork serve``: models behind an OpenAI-compatible server, with guards, record and pinned rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AllowHost, AllowOrigin, KeyFile, Port
from refork.cli.recipe import Keys
from refork.errors import BadInput
from refork.registry import part

if TYPE_CHECKING:
    from refork.serve.opening import Opened
    from refork.serve.settings import ServerSettings

Models = Annotated[
    list[str],
    typer.Option(
        "--model", help="[NAME=]DIR, organism:NAME or any policy (openai:URL#MODEL); may be repeated."
    ),
]
Drafter = Annotated[
    Path | None, typer.Option("--drafter", help="Folder of a drafter trained for the (one) local model.")
]
Rule = Annotated[
    Literal["coupled", "rejection"],
    typer.Option("--rule", help="coupled: tokens of plain decoding; rejection: its distribution, faster."),
]
DraftCost = Annotated[
    Path | None, typer.Option("--draft-cost", help="Table of speculate profile: draft as load allows.")
]
Calibration = Annotated[Path | None, typer.Option("--calibration", help="File of speculate calibrate.")]
Pool = Annotated[str | None, typer.Option("--pool", help="[NAME=]pool.toml: a pool of workers as one model.")]
Head = Annotated[Path | None, typer.Option("--head", help="The pool's fitted selection head.")]
Backbone = Annotated[
    str | None, typer.Option("--backbone", help="The local model (hf:DIR) that the head reads.")
]
Worker = Annotated[
    str | None, typer.Option("--worker", help="Always this worker of the pool, without a head.")
]
Record = Annotated[Path | None, typer.Option("--record", help="Tree that every answer is written to.")]
Pin = Annotated[
    Path | None, typer.Option("--pin", help="Policy file (YAML) whose rules stand in every chat.")
]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen on; beyond this machine only with a key.")
]
Width = Annotated[int, typer.Option("--width", min=1, help="Answers a local model draws at the same time.")]
Lanes = Annotated[
    int, typer.Option("--lanes", min=1, help="Questions other models are asked at the same time.")
]
Waiting = Annotated[
    int, typer.Option("--waiting", min=0, help="Choices that may wait for a model; more get 429.")
]
Otlp = Annotated[
    str | None, typer.Option("--otlp", help="OpenTelemetry collector (http://HOST:4318/v1/traces).")
]
Changes = Annotated[
    list[str],
    typer.Option("--set", help="Any other setting as NAME=VALUE: timeout_s=60, max_tokens=4096, ..."),
    Keys("refork.serve.settings:ServerSettings"),
]


def serve_command(
    models: Models = [],  # noqa: B006
    drafter: Drafter = None,
    pool: Pool = None,
    record: Record = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    key_file: KeyFile = None,
    rule: Rule = "coupled",
    draft_cost: DraftCost = None,
    calibration: Calibration = None,
    head: Head = None,
    backbone: Backbone = None,
    worker: Worker = None,
    pin: Pin = None,
    hosts: AllowHost = [],  # noqa: B006
    origins: AllowOrigin = [],  # noqa: B006
    width: Width = 16,
    lanes: Lanes = 1,
    waiting: Waiting = 256,
    otlp: Otlp = None,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Serve local models, remote ones and routed pools to any OpenAI client, at http://HOST:PORT/v1.

    Local models are served by continuous batching, with shared prefixes, and a drafter where one is given.
    Ctrl-C lets running answers end, a second one does not. --template prints all
    other settings; --recipe and --set give them.

    Example: refork serve --model runs/model --drafter runs/draft --record served.db --set max_tokens=4096
    """
    from refork.serve import serve
    from refork.serve.keys import read_keys
    from refork.serve.opening import Drafting, distinct
    from refork.serve.settings import ServerSettings, changed

    told: dict[str, Any] = {"host": host, "port": port, "width": width, "lanes": lanes, "waiting": waiting}
    told |= {"hosts": frozenset(hosts), "origins": frozenset(origins)}
    settings = changed(
        ServerSettings(**told, keys=read_keys(key_file), record=record, pin=pin, otlp=otlp), changes
    )
    drafting = None if drafter is None else Drafting(drafter, rule, draft_cost, calibration)
    if drafting is None and (draft_cost is not None or calibration is not None):
        raise BadInput("there is no drafter to schedule or calibrate", hint="--drafter DIR")
    opened = _opened(models, width, drafting)
    if pool is not None:
        opened.append(part("serve.pool")(pool, head, backbone, worker))
    elif head is not None or backbone is not None or worker is not None:
        raise BadInput("there is no pool to choose from", hint="--pool pool.toml")
    behind = distinct(opened)

    def ready(address: str) -> None:
        for line in _announcement(address, opened, settings):
            typer.echo(line, err=True)

    serve(behind, settings, ready=ready)


def _opened(models: list[str], width: int, drafting: object) -> list[Opened]:
    """Every model, with the drafter on the one it was trained for."""
    from refork.cli.live import LiveProgress
    from refork.serve.opening import Drafting, open_model

    if drafting is not None and len(models) != 1:
        raise BadInput("a drafter drafts for one model", hint="serve the others from another process")
    assert drafting is None or isinstance(drafting, Drafting)
    with LiveProgress() as live:
        return [open_model(item, width, drafting, live) for item in models]


def _announcement(address: str, opened: list[Opened], settings: ServerSettings) -> list[str]:
    """What is served, to whom, and what becomes of it."""
    from refork.serve.keys import is_loopback

    reach = "this machine only" if is_loopback(settings.host) else "other machines can reach it"
    keys = f"{len(settings.keys)} keys accepted" if settings.keys else "no key needed"
    widest = max(len(one.name) for one in opened)
    lines = [f"serving at {address} ({reach}; {keys})"]
    lines += [f"  {one.name:{widest}}  {one.about}" for one in opened]
    if settings.record is not None:
        lines.append(f"every answer is recorded in {settings.record}")
    if settings.pin is not None:
        lines.append(f"the rules of {settings.pin} stand in every chat")
    lines.append(f"metrics at {address.removesuffix('/v1')}/metrics; Ctrl-C lets running answers end")
    return lines
