"""``refork speculate``: import, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from refork.cli.common import AsJson, existing, print_json

Layout = Literal["deepspec", "speculators", "dflash", "transformers"]
Model = Annotated[str, typer.Option("--model", help="The target: its folder, hf:DIR or organism:NAME.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork speculate``."""
    app.command("import")(import_)
    app.command("export")(export)


def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A published drafter, downloaded.")],
    model: Model,
    out: Annotated[Path, typer.Option("--out", help="Folder of our drafter, which does not exist yet.")],
    ignore: Annotated[
        list[str],
        typer.Option("--ignore", help="A config field that is not known here, to be passed over."),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Read a drafter of DeepSpec, speculators or DFlash, and keep it as one of ours.

    What ours have no counterpart of is refused by name: a reduced vocabulary, other norms, odd positions.

    Example: refork speculate import downloads/dspark --model downloads/target --out drafts/dspark
    """
    from refork.cli.live import LiveProgress
    from refork_methods.speculate.checkpoint import save_draft
    from refork_methods.speculate.commands.train import open_target
    from refork_methods.speculate.layouts import import_draft, layout_of_folder, refuse_taken

    layout = layout_of_folder(existing(folder))
    refuse_taken(out)
    with LiveProgress() as live:
        target = open_target(model, live)
    draft = import_draft(folder, target, ignore=ignore)
    save_draft(draft, draft.config, out, {"imported": {"layout": layout, "folder": folder.name}})
    told = {"layout": layout, "folder": str(out), "draft": draft.config.to_json()}
    if as_json:
        print_json(told)
        return
    config = draft.config
    typer.echo(
        f"{layout}: {config.kind} drafter of {config.layers} layers, {config.block} tokens a round, "
        f"head {config.head if config.sequential else 'none'}; kept in {out}"
    )


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="One of our drafters.")],
    model: Model,
    layout: Annotated[Layout, typer.Option("--layout", help="Whose layout it is written in.")],
    out: Annotated[Path, typer.Option("--out", help="A folder that does not exist yet.")],
    verifier: Annotated[
        str | None, typer.Option("--verifier", help="Name or path of the target there (default: --model).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one of our drafters for DeepSpec, speculators, DFlash or transformers' own DFlash generation.

    Example: refork speculate export drafts/dspark --model downloads/target --layout speculators --out there
    """
    from refork.cli.live import LiveProgress
    from refork_methods.speculate.checkpoint import load_draft
    from refork_methods.speculate.commands.train import open_target
    from refork_methods.speculate.dflash_hf import save_assistant
    from refork_methods.speculate.layouts import export_draft

    existing(folder)
    with LiveProgress() as live:
        target = open_target(model, live)
    draft = load_draft(folder, target)
    if layout == "transformers":
        save_assistant(draft, out)
    else:
        export_draft(draft, target, out, layout, verifier=verifier or model)
    told = {"layout": layout, "folder": str(out), "kind": draft.config.kind}
    if as_json:
        print_json(told)
        return
    typer.echo(f"{layout}: written to {out}")
