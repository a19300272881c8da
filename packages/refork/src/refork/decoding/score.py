"""Log-probs and hidden states of given sequences, on the same shared prefixes as sampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from refork.decoding.loop import Decoder, ForwardOutput, Wanted
from refork.decoding.plan import Traces
from refork.decoding.prefill import Ints
from refork.decoding.states import Layer
from refork.sampling import distribution
from refork.types import FloatArray, IntArray


def score(
    decoder: Decoder[Any],
    sequences: Sequence[IntArray],
    starts: Sequence[int] | None = None,
    prompts: Sequence[int] | None = None,
) -> list[FloatArray]:
    """Log-probs in nats, temperature 1, of tokens ``starts[i] ..`` of each sequence given those before.

    Starts are at least 1 (the default). Logits live for one pass only, so memory does not grow with the
    vocabulary. ``prompts`` is how many tokens of each are its prompt (default: all), for edits that ask.
    """
    # The first token has nothing before it, so no log-prob.
    begin = np.maximum(np.array(starts if starts is not None else [1] * len(sequences), dtype=np.int64), 1)
    counts = np.array([len(s) for s in sequences], dtype=np.int64) - begin
    out = [np.zeros(max(int(count), 0), dtype=np.float32) for count in counts]
    with torch.inference_mode():
        # A token's log-prob stands in the logits of the place before it.
        for part, row, offset, picked, read in _read(decoder, sequences, begin - 1, counts, prompts):
            logits = read.logits
            targets = np.array(
                [sequences[part[r]][begin[part[r]] + o] for r, o in zip(row, offset, strict=True)],
                dtype=np.int64,
            )
            index = torch.from_numpy(picked).to(logits.device)
            token = torch.from_numpy(targets).to(logits.device)
            found = distribution.token_logprobs(logits[index], token).cpu().numpy()
            for r, o, value in zip(row, offset, found, strict=True):
                out[part[r]][o] = value
    return out


def next_distributions(decoder: Decoder[Any], sequences: Sequence[IntArray]) -> list[FloatArray]:
    """Log-probs in nats, temperature 1, of every token after each sequence: [vocabulary] each."""
    last = np.array([len(s) for s in sequences], dtype=np.int64) - 1
    out = [np.zeros(0, dtype=np.float32)] * len(sequences)
    with torch.inference_mode():
        for part, row, _, picked, read in _read(decoder, sequences, last, np.ones_like(last)):
            logits = read.logits
            rows = logits[torch.from_numpy(picked).to(logits.device)].double()
            found = torch.log_softmax(rows, dim=-1).float().cpu().numpy()
            for r, law_ in zip(row, found, strict=True):
                out[part[r]] = law_
    return out


def hidden(
    decoder: Decoder[Any],
    sequences: Sequence[IntArray],
    layers: Sequence[Layer],
    starts: Sequence[int],
    prompts: Sequence[int] | None = None,
) -> list[FloatArray]:
    """Hidden states [layers, n - start, width] of tokens ``starts[i] ..`` of each sequence.

    ``prompts`` as in :func:`score`.
    """
    numbers = decoder.number(layers)
    begin = np.array(starts, dtype=np.int64)
    counts = np.array([len(s) for s in sequences], dtype=np.int64) - begin
    out: list[FloatArray | None] = [None] * len(sequences)
    with torch.inference_mode():
        for part, row, offset, picked, read in _read(decoder, sequences, begin, counts, prompts, numbers):
            assert read.states is not None
            values = read.states.float().cpu().numpy()
            for r, o, p in zip(row, offset, picked, strict=True):
                i = int(part[r])
                mine = out[i]
                if mine is None:
                    size = (len(layers), int(counts[i]), values.shape[2])
                    mine = out[i] = np.zeros(size, dtype=np.float32)
                mine[:, o] = values[p]
    empty = np.zeros((len(layers), 0, 0), dtype=np.float32)
    return [empty if mine is None else mine for mine in out]


def _read(
    decoder: Decoder[Any],
    sequences: Sequence[IntArray],
    first: Ints,
    counts: Ints,
    prompts: Sequence[int] | None = None,
    layers: tuple[int, ...] = (),
) -> Iterator[tuple[Ints, Ints, Ints, Ints, ForwardOutput]]:
    """Read positions ``first[i] .. first[i] + counts[i] - 1`` of each sequence, pass by pass.

    Yields the sequence numbers of the session, then for each value in this pass its place in them, its
    offset, and its row in the part that comes last.
    """
    if not len(sequences):
        return
    if decoder.switch is None:
        yield from _alike(decoder, sequences, first, counts, prompts, layers)
        return
    # A place up to the switch is read in its own short context, whatever comes behind it.
    switch, last = decoder.switch, first + counts
    for low, high, cut in ((0, switch, switch), (switch, None, None)):
        begin = np.maximum(first, low)
        count = (last if high is None else np.minimum(last, high)) - begin
        mine = np.flatnonzero(count > 0)
        parts = [sequences[int(i)][:cut] for i in mine]
        ends = None
        if prompts is not None:
            ends = [min(prompts[int(i)], len(tokens)) for i, tokens in zip(mine, parts, strict=True)]
        found = _alike(decoder, parts, begin[mine], count[mine], ends, layers)
        for part, row, offset, picked, read in found:
            shift = (begin - first)[mine[part]]
            yield mine[part], row, offset + shift[row], picked, read


def _alike(
    decoder: Decoder[Any],
    sequences: Sequence[IntArray],
    first: Ints,
    counts: Ints,
    prompts: Sequence[int] | None,
    layers: tuple[int, ...],
) -> Iterator[tuple[Ints, Ints, Ints, Ints, ForwardOutput]]:
    """As :func:`_read`, where every place of a sequence may be read with the others."""
    if not len(sequences):
        return
    folded = decoder.fold(sequences, prompts if prompts is not None else [len(s) for s in sequences])
    order = np.lexsort((folded.keep, folded.owner))
    for part in decoder.sessions(folded, order):
        row = np.repeat(np.arange(len(part)), np.maximum(counts[part], 0))
        if not len(row):
            continue
        offset = np.concatenate([np.arange(max(int(counts[i]), 0)) for i in part])
        yield from _session(decoder, folded, part, row, offset, first[part][row] + offset, layers)


def _session(
    decoder: Decoder[Any],
    folded: Traces,
    part: Ints,
    row: Ints,
    offset: Ints,
    position: Ints,
    layers: tuple[int, ...],
) -> Iterator[tuple[Ints, Ints, Ints, Ints, ForwardOutput]]:
    owners, trace = np.unique(folded.owner[part], return_inverse=True)
    rows = np.bincount(trace, minlength=len(owners))
    wanted = Wanted(trace[row], position)
    _, whose, passes = decoder.read(folded, owners, rows, wanted, layers, logits=not layers)
    order = np.argsort(whose, kind="stable")
    for values in passes:
        answers = values.answers
        if not len(answers):
            continue
        # Answers are numbered in the order of the passes, so those of one pass are a range.
        low, high = np.searchsorted(whose[order], [answers[0], answers[-1] + 1])
        mine = order[low:high]
        yield part, row[mine], offset[mine], whose[mine] - answers[0], values
