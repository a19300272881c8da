"""``refork crosscoder``: one sparse dictionary over two models; what only one of them has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, RunFolder, existing, print_json
from refork.cli.recipe import Keys

if TYPE_CHECKING:
    from refork.decoding.states import Layer
    from refork_methods.crosscoder.rank import FeatureRow

app = typer.Typer(
    help="Train one sparse dictionary over two models' activations; find, test and steer its features.",
    no_args_is_help=True,
)


@app.command()
def cache(
    out: Annotated[Path, typer.Option("--out", help="The cache's folder.")],
    a: Annotated[str, typer.Option("--a", help="The policy under study, hf:DIR or such.")],
    b: Annotated[str, typer.Option("--b", help="The policy it is compared with.")],
    layers: Annotated[
        list[str],
        typer.Option("--layer", help="As in hidden_states: 0 the embedding, 1 after one block; or raw."),
    ],
    texts: Annotated[
        Path | None, typer.Option("--texts", help='JSON lines: {"text": ..., "label": ...}.')
    ] = None,
    tree: Annotated[Path | None, typer.Option("--tree", help="Read a tree's actions instead.")] = None,
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", help="last or all of each; default: last of texts, all of actions."),
    ] = None,
    longest: Annotated[int, typer.Option("--longest", min=1, help="Tokens a text is cut to.")] = 512,
    half: Annotated[bool, typer.Option("--half", help="Keep float16 instead of float32.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read the same texts with two policies and keep their hidden states side by side.

    Example: refork crosscoder cache --texts prompts.jsonl --a hf:RL --b hf:BASE --layer 14 --out runs/cache
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.tree import Tree
    from refork_methods.crosscoder import cache as caching

    if (texts is None) == (tree is None):
        raise BadInput("name either --texts or a --tree")
    if tokens not in (None, "last", "all"):
        raise BadInput(f"--tokens is {tokens!r}", hint="last or all")
    chosen = [_layer(text) for text in layers]
    dtype: Any = "float16" if half else "float32"
    with LiveProgress() as live:
        pair = _local(a), _local(b)
        which: Any = tokens or ("all" if texts is None else "last")
        if texts is not None:
            told = caching.cache_texts(
                caching.read_texts(existing(texts)), *pair, chosen, out,
                which=which, longest=longest, dtype=dtype, progress=live,
            )  # fmt: skip
        else:
            assert tree is not None
            with Tree.open(existing(tree), "r") as store:
                told = caching.cache_tree(store, *pair, chosen, out, which=which, dtype=dtype, progress=live)
    if as_json:
        print_json(told)
        return
    typer.echo(f"{told['texts']} texts, {told['rows']} pairs of activations in {told['folder']}")


@app.command()
def train(
    out: RunFolder,
    data: Annotated[Path | None, typer.Option("--cache", help="What `crosscoder cache` wrote.")] = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A TOML recipe.")] = None,
    dict_size: Annotated[
        int | None, typer.Option("--dict-size", min=1, help="Features; default 1024.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Features that fire a sample; default 16.")
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="A key, e.g. exclusive.a=0.05, activation=topk, training.steps=2000."),
        Keys("refork_methods.crosscoder.run:CrossCoderRecipe"),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Train a crosscoder on a cache; the same command again goes on where it stopped.

    Example: refork crosscoder train --cache runs/cache --out runs/cc --set exclusive.a=0.05 --set
    exclusive.b=0.05
    """
    from refork.cli.live import LiveProgress
    from refork.runs.recipe import resolve
    from refork_methods.crosscoder.run import CrossCoderRecipe, run_train

    plan = resolve(
        CrossCoderRecipe, recipe, settings, dict_size=dict_size, k=k,
        cache=None if data is None else str(existing(data).resolve()),
    )  # fmt: skip
    with LiveProgress() as live:
        told = run_train(plan, out, live)
    if as_json:
        print_json(told)
        return
    last = told["log"][-1]
    typer.echo(
        f"{told['steps']} steps, {told['activations']:,} activations at "
        f"{told['activations_per_second']:,.0f}/s, peak memory {told['peak_mib']:,.0f} MiB"
    )
    typer.echo(
        f"variance explained {told['fve']:.4f}, L0 {last['l0']:.1f}, {told['dead']} features silent; "
        + ", ".join(f"{n} {kind}" for kind, n in told["classes"].items())
    )
    typer.echo(told["model"])


@app.command()
def rank(
    out: RunFolder,
    positive: Annotated[
        str, typer.Option("--positive", help="Label of the texts whose features are sought.")
    ],
    data: Annotated[
        Path | None, typer.Option("--cache", help="Default: the cache it was trained on.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help='JSON lines: {"node": ..., "label": ...}.')
    ] = None,
    pool: Annotated[
        str, typer.Option("--pool", help="A text's value: at its last token, or its max.")
    ] = "last",
    most: Annotated[int, typer.Option("--most", min=1, help="Rows of the table.")] = 15,
    as_json: AsJson = False,
) -> None:
    """Rank features by how well they tell texts with a label from the others; draws the feature scatter.

    Example: refork crosscoder rank --out runs/cc --positive tool
    """
    from refork.errors import BadInput
    from refork_methods.crosscoder.pictures import feature_figure
    from refork_methods.crosscoder.run import run_rank

    if pool not in ("last", "max"):
        raise BadInput(f"--pool is {pool!r}", hint="last or max")
    told, rows = run_rank(existing(out), data, positive, labels=labels, pool=pool)  # type: ignore[arg-type]
    picture = out / "features.svg"
    picture.write_text(feature_figure(rows, positive).svg(), encoding="utf-8")
    if as_json:
        print_json(told | {"picture": str(picture)})
        return
    _table(rows[:most], positive)
    typer.echo(f"{told['texts'][0]} {positive} texts, {told['texts'][1]} others; {picture}")


def _layer(text: str) -> Layer:
    from refork.errors import BadInput

    if text == "raw":
        return "raw"
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"--layer is {text!r}", hint="a number, or raw") from None


def _local(spec: str) -> Any:
    from refork.policies.open import open_policy
    from refork.policies.whitebox import white_box

    return white_box(open_policy(spec))


def _table(rows: list[FeatureRow], positive: str) -> None:
    from rich.table import Table

    from refork.cli.screen import open_console

    table = Table(box=None, header_style="dim", show_edge=False, padding=(0, 2, 0, 0))
    for name in ("feature", "block", "norms", "d", "AUROC", positive, "else", "", "fires most on"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows:
        shown = " ".join(dict.fromkeys(repr(e.token) for e in row.examples))
        table.add_row(
            str(row.feature), row.block, row.kind, f"{row.d:.2f}", f"{row.auroc:.3f}",
            f"{row.fires_positive:.0%}", f"{row.fires_negative:.0%}",
            "candidate" if row.candidate else "", shown,
        )  # fmt: skip
    open_console().print(table)
