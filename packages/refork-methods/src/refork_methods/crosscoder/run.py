"""Whole runs, as the command line and recipes start them: train on a cache, rank what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from refork.decoding.states import Layer
from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart, open_folder
from refork.types import Json
from refork_methods.crosscoder.cache import (
    cache_for,
    cached_tree,
    encode_cache,
    example_of,
    labels_of,
    open_cache,
)
from refork_methods.crosscoder.classes import fraction_of_variance, norm_classes, relative_norm
from refork_methods.crosscoder.exchange import load, save
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.rank import FeatureRow, counts, rank_features, with_examples
from refork_methods.crosscoder.train import TrainSettings, train

MODEL, REPORT, FEATURES = "model", "training.json", "features.json"


class Exclusive(RecipePart):
    """Shares of the dictionary for one model alone."""

    #: Share of the dictionary that is model a's alone.
    a: float = Field(default=0.0, ge=0, le=1)
    #: Share that is model b's alone.
    b: float = Field(default=0.0, ge=0, le=1)


class CrossCoderRecipe(RecipePart):
    """Which crosscoder, trained on which cache, how."""

    #: Folder of a cache of activations.
    cache: str
    #: Layer of the cache; default: its only one.
    layer: int | Literal["raw"] | None = None
    #: Features of the dictionary.
    dict_size: int = Field(default=1_024, ge=1)
    #: Features that are active at a position.
    k: int | None = Field(default=16, ge=1)
    #: How they are chosen.
    activation: Literal["topk", "batch_topk", "l1"] = "batch_topk"
    #: What they are chosen by; default: what goes with the activation.
    scoring: Literal["decoder_norm", "value"] | None = None
    #: First weights: random, or encoder and decoder tied.
    start: Literal["random", "tied"] = "random"
    #: Shares of the dictionary for one model alone.
    exclusive: Exclusive = Exclusive()
    #: Where it is trained.
    device: str = "cpu"
    #: Of the first weights.
    seed: int = 0
    #: How it is trained.
    training: TrainSettings = TrainSettings()


def run_train(recipe: CrossCoderRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Train a recipe's crosscoder into a folder; the same call again goes on where it stopped.

    Raises:
        BadInput: an impossible recipe, or a cache too small for a batch.
        Mismatch: the folder holds another run.
    """
    layer: Layer | None = recipe.layer
    source = open_cache(Path(recipe.cache), layer)
    model = CrossCoder(
        source.d_in, recipe.dict_size, recipe.k, recipe.activation,
        Partition(recipe.exclusive.a, recipe.exclusive.b), scoring=recipe.scoring, start=recipe.start,
        seed=recipe.seed,
    ).to(recipe.device)  # fmt: skip
    open_folder(folder, recipe)
    report = train(model, source, recipe.training, folder=folder / "checkpoints", progress=progress)
    model = model.to("cpu")
    save(model, folder / MODEL)
    share = relative_norm(model)
    # A feature that writes nothing is of no class.
    kinds = norm_classes(share[np.isfinite(share)])
    told = report.to_json() | {
        "model": str(folder / MODEL),
        "fve": fraction_of_variance(model, source),
        "classes": {kind: kinds.count(kind) for kind in ("A only", "B only", "shared")},
        "forbidden_weight_max": model.forbidden_weight_max(),
    }
    (folder / REPORT).write_text(json.dumps(told, indent=2) + "\n")
    return told


def run_rank(
    folder: Path,
    cache: Path | None,
    positive: str,
    *,
    labels: Path | None = None,
    pool: Literal["last", "max"] = "last",
    examples: int = 5,
    top_features: int = 100,
) -> tuple[Json, list[FeatureRow]]:
    """Rank the features of a run on a cache's labelled texts, and write ``features.json``.

    Positive are the texts with the label ``positive``, negative those with any other. The best
    ``top_features`` rows by Cohen's d, and all candidates, get examples.

    Raises: BadInput where a label does not occur or nothing is labelled.
    """
    model = load(folder / MODEL)
    source = cache_for(
        model, cache or Path(json.loads((folder / "recipe.json").read_text())["recipe"]["cache"])
    )
    encoded = encode_cache(model, source)
    nodes, values = encoded.by_node(pool)
    with cached_tree(source) as tree:
        known = labels_of(tree, nodes, labels)
        kinds = np.array([known.get(node, "") for node in nodes])
        if not (kinds == positive).any():
            there = ", ".join(sorted(set(known.values()))) or "none"
            raise BadInput(f"no text is labelled {positive!r}", where="rank", hint=f"labels here: {there}")
        rows = rank_features(model, values[kinds == positive], values[(kinds != positive) & (kinds != "")])
        best = [row for i, row in enumerate(rows) if i < top_features or row.candidate]
        named = {
            r.feature: r for r in with_examples(best, encoded.values, example_of(tree, encoded), examples)
        }
    rows = [named.get(row.feature, row) for row in rows]
    told = {
        "positive": positive,
        "texts": [int((kinds == positive).sum()), int(((kinds != positive) & (kinds != "")).sum())],
        "unlabelled": int((kinds == "").sum()),
        "pool": pool,
        "counts": counts(rows),
        "features": [row.to_json() for row in rows],
    }
    text = json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    (folder / FEATURES).write_text(text, encoding="utf-8")
    return told, rows
