"""Every move on every kernel, compiled and compared with the original; and random chains of moves."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernel.rewrite.kernels import BY_NAME, FLAGS, KERNELS, Kernel, build, call, same
from refork_methods.kernel.rewrite import Move, apply, moves

#: The same moves with more of the same: left out to save time.
LARGE = {
    "size": (32, 64, 128, 256),
    "times": (6, 8),
    "rows": (6, 8),
    "count": (8,),
    "copies": (8,),
    "ahead": (64, 512),
}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def _promised(source: str) -> str:
    """With pointers declared restrict where that can be done."""
    first = next((one for one in moves(source, "run", FLAGS) if one.name == "restrict"), None)
    return source if first is None else apply(source, "run", FLAGS, first)[0]


def _small(move: Move) -> Move:
    """The move where it pays from the first byte on."""
    kept = dict(move.parameters)
    return Move(move.name, kept | {"beyond": 0} if "beyond" in kept else kept)


@needs_gcc
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_move_computes_the_same(kernel: Kernel, tmp_path: Path) -> None:
    variants: dict[str, str] = {"": kernel.source}
    for source in (kernel.source, _promised(kernel.source)):
        for move in moves(source, "run", FLAGS):
            if move.name == "flags" or any(move.parameters.get(key) in large for key, large in LARGE.items()):
                continue
            made = apply(source, "run", FLAGS, _small(move))[0]
            variants.setdefault(f"{move.id} {source is kernel.source}", made)
    library = build(list(variants.values()), tmp_path)
    same(library, [(number, name) for number, name in enumerate(variants)], kernel)


@needs_gcc
# No shrinking: an example is a seed, and a compilation each.
@settings(max_examples=12, deadline=None, phases=[Phase.generate], derandomize=True, database=None)
@given(name=st.sampled_from([k.name for k in KERNELS]), seed=st.integers(0, 10**6))
def test_chains_of_moves_compute_the_same(name: str, seed: int) -> None:
    kernel, rng = BY_NAME[name], np.random.default_rng(seed)
    source, flags = _promised(kernel.source), FLAGS
    chain: list[str] = []
    variants = [kernel.source]
    for _ in range(4):
        offered = [one for one in moves(source, "run", flags) if one.name != "flags"]
        if not offered:
            break
        # By name first: otherwise nearly all would be unrolls and tiles.
        kind = rng.choice(sorted({one.name for one in offered}))
        alike = [one for one in offered if one.name == kind]
        move = alike[rng.integers(len(alike))]
        chain.append(move.id)
        source, flags = apply(source, "run", flags, _small(move))
        variants.append(source)
    with tempfile.TemporaryDirectory() as folder:
        library = build(variants, Path(folder))
        same(
            library, [(number, " ".join(chain[:number])) for number in range(1, len(variants))], kernel, seed
        )


@needs_gcc
def test_the_inlined_exponential_is_within_two_units_in_the_last_place(tmp_path: Path) -> None:
    source = (
        "#include <math.h>\nvoid run(int n, const float *restrict x, float *restrict y) {\n"
        "    for (int i = 0; i < n; i++) y[i] = expf(x[i]);\n}\n"
    )
    move = next(one for one in moves(source, "run", FLAGS) if one.name == "fast_exp")
    assert move.reassociates
    library = build([apply(source, "run", FLAGS, move)[0]], tmp_path, FLAGS)
    x = np.concatenate([np.linspace(-86.9, 88, 100_003), [0, np.inf, -np.inf, np.nan, 89, -88]]).astype(
        np.float32
    )
    kernel = Kernel("exp", source, lambda n, rng: [])
    _, (_, y) = call(library, 0, kernel, [x.size, x, np.zeros_like(x)])
    wanted = np.exp(x[:-6].astype(np.float64))
    assert (np.abs(y[:-6] - wanted) <= 2 * np.spacing(wanted.astype(np.float32))).all()
    assert np.array_equal(y[-6:], np.array([1, np.inf, 0, np.nan, np.inf, 0], np.float32), equal_nan=True)
