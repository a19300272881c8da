"""Crosscoders: are planted concepts found, is the fold exact, how fast is training, does steering act?

Planted worlds (32 channels a model, 40 shared concepts, 4 of A alone, 4 of B alone; dictionary 128, k 3,
batches of 128, 2,500 steps): recall of A's own concepts, variance explained, and how many of them land in
A's block, which nothing in the loss asks for. Speed: pairs of activations a second beside SAELens'
BatchTopK trainer on the two models' activations side by side, the same products, in turns in one process.
The same trainer also learns the planted worlds, on equal data in equal steps, at the best of three rates.
On the tool-calling organisms: the steering of one feature beside random directions of its norm, and
spillover beside shuffled pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from refork.errors import CannotDo
from refork_methods.crosscoder.audit import exclusivity
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import Normalizer
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.planted import PlantedWorld, planted_world, recall
from refork_methods.crosscoder.sources import ArrayPairs
from refork_methods.crosscoder.train import TrainSettings, train

Floats = NDArray[np.float32]
#: Of the dictionary, exclusive to each model; the figures are of this share.
SHARE = 0.06
#: Peak learning rates that the public trainer is tried at; ours takes its own default, 2.3e-3 here.
RATES = (1e-3, 2.3e-3, 5e-3)


# -- planted concepts and the fold ---------------------------------------------------------------


def fold_error(model: CrossCoder, source: ArrayPairs) -> float:
    """Largest difference between raw units through the normaliser and folded weights, over the largest value.

    Activations are given levels and spreads of their own first: a fold of statistics near 0 and 1 shows
    nothing.
    """
    a, b = (torch.from_numpy(x) for x in source.chunk(0))
    plain = model.folded()
    values = model.encode(a, b)
    through = torch.cat(model.decode(values), dim=1)
    folded = torch.cat([a, b], dim=1) @ plain.W_enc.T + plain.b_enc
    features = (folded - values).abs()[values > 0].max() / values.max()
    rebuilt = (values @ plain.W_dec + plain.b_dec - through).abs().max() / through.abs().max()
    return float(torch.maximum(features, rebuilt))


def skewed(source: ArrayPairs, seed: int) -> ArrayPairs:
    """The same activations with a level and a spread for each channel, as residual streams have."""
    rng = np.random.default_rng(seed)
    sides = [x * rng.uniform(0.05, 20, x.shape[1]) + rng.normal(0, 20, x.shape[1]) for x in source.chunk(0)]
    return ArrayPairs(*sides)


def concepts(a: Floats, b: Floats, world: PlantedWorld) -> tuple[float, float]:
    """Share of A's own concepts and of all of them that a dictionary's directions, [f, d] a model, find.

    As :func:`recall` has it: a cosine above 0.9, in each model that has the concept, and for a concept of one
    model more than nine tenths of the feature's length there.
    """
    lengths = np.stack([np.linalg.norm(x, axis=1) for x in (a, b)])
    share = lengths[0] / np.maximum(lengths.sum(0), 1e-12)
    fits = [
        (own @ (x / np.maximum(size, 1e-12)[:, None]).T) > 0.9
        for own, x, size in ((world.a, a, lengths[0]), (world.b, b, lengths[1]))
    ]
    in_a, in_b = (np.abs(own).sum(1) > 0 for own in (world.a, world.b))
    both = (in_a & in_b)[:, None]
    found = np.where(both, fits[0] & fits[1], np.where(in_a[:, None], fits[0] & (share > 0.9), False))
    found |= ~in_a[:, None] & fits[1] & (share < 0.1)
    each = found.any(1)
    return float(each[in_a & ~in_b].mean()), float(each.mean())


def planted_peer(seed: int, rate: float, steps: int = 2_500, batch: int = 128) -> tuple[float, float, float]:
    """SAELens' trainer on a planted world: A's own and all concepts found, variance explained, held out."""
    world = planted_world(seed=seed)
    given, held = (
        torch.from_numpy(np.concatenate(world.sample(count, start + seed).chunk(0), axis=1))
        for count, start in ((60_000, 100), (5_000, 200))
    )
    sae = fit_sae(given, 128, 3, steps, batch, rate, seed)
    with torch.no_grad():
        fve = explained(held, sae(held))
    w = sae.W_dec.detach().numpy()
    return *concepts(w[:, :32], w[:, 32:], world), fve


def beside_planted(ours: dict[str, Any], seeds: range, rates: tuple[float, ...] = RATES) -> dict[str, Any]:
    """The public trainer's recovery at the best of some rates, beside ours on the same worlds."""
    told = {rate: np.array([planted_peer(seed, rate) for seed in seeds]) for rate in rates}
    own_side = np.array(ours["beside"])[list(seeds)]
    best = max(told, key=lambda rate: tuple(told[rate][:, 1:].mean(0)))
    print(f"planted worlds, seeds {list(seeds)}      A's own   all concepts    fve (held-out pairs)")
    rows = [(f"SAELens, rate {rate:g}", found) for rate, found in told.items()]
    for name, found in [("ours", own_side), *rows]:
        own, every, fve = found.mean(0)
        print(f"{name:36s} {own:7.3f} {every:14.3f} {fve:6.4f}")
    print()
    mine, theirs = own_side.mean(0), told[best].mean(0)
    return {
        "found": round(float(mine[1]), 4),
        "peer_recall": round(float(theirs[0]), 4),
        "peer_found": round(float(theirs[1]), 4),
        "fve_gap": round(float(mine[2] - theirs[2]), 4),
    }


def planted(shares: tuple[float, ...], seeds: range) -> dict[str, Any]:
    """Recall, variance explained, capture, forbidden weights and fold error over worlds."""
    told: dict[str, Any] = {"recall": [], "fve": [], "captured": [], "beside": []}
    told |= {"forbidden": 0.0, "fold": 0.0}
    print("exclusive share  seed  recall    fve    L0  in A's block  carried by both  dead  activations/s")
    for share in shares:
        for seed in seeds:
            world = planted_world(seed=seed)
            model = CrossCoder((32, 32), 128, 3, "batch_topk", Partition(share, share), seed=seed)
            plan = TrainSettings(steps=2_500, batch=128, seed=seed)
            report = train(model, world.sample(60_000, 100 + seed), plan)
            held = world.sample(5_000, 200 + seed)
            found, audit = recall(model, world, held), exclusivity(model, held)
            inside = "-" if found.captured is None else f"{found.captured:.2f}"
            carried = "-" if audit.carried is None else f"{audit.carried:.2f}"
            print(
                f"{share:15.0%} {seed:5d} {found.recall:7.2f} {found.fve:6.4f} {found.l0:5.2f} {inside:>13} "
                f"{carried:>16} {report.dead:5d} {report.activations_per_second:14,.0f}"
            )
            told["forbidden"] = max(told["forbidden"], model.forbidden_weight_max())
            if share == SHARE:
                told["recall"].append(found.recall)
                told["fve"].append(round(found.fve, 4))
                told["captured"].append(found.captured)
                sides = (model.directions(which).detach().numpy() for which in ("A", "B"))
                told["beside"].append((*concepts(*sides, world), held_out(model, held)))
    other = CrossCoder((32, 32), 128, 3, "batch_topk", Partition(0.06, 0.06), seed=0)
    source = skewed(planted_world(seed=0).sample(20_000, 1), 2)
    train(other, source, TrainSettings(steps=300, batch=128))
    told["forbidden"] = max(told["forbidden"], other.forbidden_weight_max())
    told["fold"] = fold_error(other, source)
    print(f"largest forbidden weight {told['forbidden']:g}, fold error {told['fold']:.1e}\n")
    return told


def held_out(model: CrossCoder, source: ArrayPairs) -> float:
    """Variance explained of pairs read as one batch, as the public trainer's layer reads them."""
    a, b = (torch.from_numpy(x) for x in source.chunk(0))
    with torch.no_grad():
        return explained(
            torch.cat([a, b], dim=1), torch.cat(model.decode(model.encode(a, b, mode="batch")), dim=1)
        )


# -- speed beside a public trainer -----------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """Width of each model, dictionary, k, batch."""

    width: int
    dictionary: int
    k: int
    batch: int = 1_024

    def __str__(self) -> str:
        return f"2 x {self.width} channels, dictionary {self.dictionary}, k {self.k}, batch {self.batch}"


def activations(size: Size) -> Floats:
    """Rows of both models side by side: sparse sums of 512 directions, unit variance."""
    rng = np.random.default_rng(0)
    strength = (rng.random((16 * size.batch, 512)) < 0.05) * rng.uniform(0.5, 1.5, (16 * size.batch, 512))
    x = strength.astype(np.float32) @ rng.standard_normal((512, 2 * size.width)).astype(np.float32)
    return np.asarray((x - x.mean(0)) / x.std(0), dtype=np.float32)


def ours(x: Floats, size: Size, steps: int) -> tuple[float, float]:
    """Activations a second and variance explained on the training rows, with all that training does."""
    model = CrossCoder((size.width, size.width), size.dictionary, size.k, start="tied", seed=0)
    source = ArrayPairs(x[:, : size.width], x[:, size.width :])
    model.set_normalizer(Normalizer.identity(2 * size.width))
    plan = TrainSettings(steps=steps, batch=size.batch, rate=3e-4)
    began = time.perf_counter()
    train(model, source, plan)
    spent = time.perf_counter() - began
    a, b = (torch.from_numpy(side[:4096]) for side in source.chunk(0))
    with torch.no_grad():
        rebuilt = torch.cat(model.decode(model.encode(a, b, mode="batch")), dim=1)
    return steps * size.batch / spent, explained(torch.from_numpy(x[:4096]), rebuilt)


def fit_sae(x: torch.Tensor, features: int, k: int, steps: int, batch: int, rate: float, seed: int) -> Any:
    """SAELens' BatchTopK SAE of rows, trained with warm-up and decay as ours has them."""
    trainer = sae_trainer(x, features, k, steps, batch, rate, seed)
    trainer.fit()
    return trainer.sae


def sae_trainer(
    x: torch.Tensor, features: int, k: int, steps: int, batch: int, rate: float = 3e-4, seed: int = 0
) -> Any:
    """SAELens' trainer of a BatchTopK SAE, ready to start."""
    from sae_lens.config import SAETrainerConfig
    from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
    from sae_lens.training.sae_trainer import SAETrainer

    torch.manual_seed(seed)
    sae = BatchTopKTrainingSAE(
        BatchTopKTrainingSAEConfig(d_in=x.shape[1], d_sae=features, k=k, decoder_init_norm=1.0)
    )
    plan = SAETrainerConfig(
        total_training_samples=steps * batch, train_batch_size_samples=batch, lr=rate, lr_end=rate / 10,
        lr_warm_up_steps=min(1_000, steps // 20), lr_decay_steps=steps // 5,
    )  # fmt: skip
    return SAETrainer(plan, sae, rows(x, batch))


def theirs(x: Floats, size: Size, steps: int) -> tuple[float, float]:
    """The same for SAELens' trainer of a BatchTopK SAE that is as wide as both models."""
    trainer = sae_trainer(torch.from_numpy(x), size.dictionary, size.k, steps, size.batch)
    began = time.perf_counter()
    trainer.fit()
    spent = time.perf_counter() - began
    part = torch.from_numpy(x[:4096])
    with torch.no_grad():
        rebuilt = trainer.sae(part)
    return steps * size.batch / spent, explained(part, rebuilt)


def rows(x: torch.Tensor, batch: int) -> Iterator[torch.Tensor]:
    """Shuffled batches for ever, each row once a pass."""
    while True:
        order = torch.randperm(len(x))
        for start in range(0, len(x) - batch + 1, batch):
            yield x[order[start : start + batch]]


def explained(x: torch.Tensor, rebuilt: torch.Tensor) -> float:
    """Fraction of variance explained."""
    return float(1 - (x - rebuilt).square().sum() / (x - x.mean(dim=0)).square().sum())


def peer() -> Any:
    """SAELens, whose import takes seconds."""
    try:
        import sae_lens
        from sae_lens.training import sae_trainer  # noqa: F401
    except ImportError as error:
        raise CannotDo(
            "sae-lens is not installed", hint="`make bench` installs it, as does `pip install --group peers`"
        ) from error
    return sae_lens


def speed(quick: bool) -> float:
    """Smallest ratio of our activations a second to SAELens', over the sizes, medians of rounds in turns."""
    sae_lens = peer()
    print(f"activations a second, {torch.get_num_threads()} threads, beside SAELens {sae_lens.__version__}")
    plans = [(Size(128, 1_024, 16), 40), (Size(256, 4_096, 32), 8)]
    if not quick:
        plans = [(Size(128, 1_024, 16), 400), (Size(256, 4_096, 32), 100), (Size(512, 8_192, 45), 20)]
    ratios = []
    for size, steps in plans:
        x = activations(size)
        pairs = [(ours(x, size, steps), theirs(x, size, steps)) for _ in range(3)]
        mine, other = (statistics.median(pair[i][0] for pair in pairs) for i in (0, 1))
        ratios.append(mine / other)
        print(
            f"{size}: {mine:9,.0f} against {other:9,.0f}, ratio {mine / other:5.2f}; "
            f"variance explained after {steps} steps {pairs[-1][0][1]:.3f} and {pairs[-1][1][1]:.3f}"
        )
    print()
    return min(ratios)


def beside(quick: bool) -> subprocess.Popen[str]:
    """The tool-use part, on a core of its own while the planted part runs; nothing is timed meanwhile."""
    script = Path(__file__).parent / "parts" / "crosscoder_tool_use.py"
    command = [sys.executable, str(script), *(["--quick"] if quick else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> dict[str, float]:
    """Its table, printed here, and its figures."""
    out, _ = process.communicate()
    if process.returncode:
        sys.exit(process.returncode)
    *table, last = out.splitlines()
    print("\n".join(table))
    figures: dict[str, float] = json.loads(last)
    return figures


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    threads = torch.get_num_threads()
    other = beside(options.quick)
    torch.set_num_threads(1)
    dictionary = planted((SHARE,) if options.quick else (0.0, SHARE, 0.12), range(3))
    peer()
    quick_plan = (range(1), RATES[-1:])
    public = beside_planted(dictionary, *(quick_plan if options.quick else (range(3), RATES)))
    tool_use = told(other)
    torch.set_num_threads(threads)
    ratio = speed(options.quick)
    print(
        json.dumps(
            {
                "recall": dictionary["recall"],
                "fve": dictionary["fve"],
                "forbidden_weight_max": dictionary["forbidden"],
                "fold_error": dictionary["fold"],
                "planted": public,
                **tool_use,
                "acts_per_s_ratio": round(ratio, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
