"""A speculator that knows what plain decoding says, and errs where it is told to."""

import numpy as np
import torch

from refork.decoding.speculator import Drafts, Settled
from refork.sampling import distribution
from refork.sampling.noise import gumbels, uniforms


class Oracle:
    """Drafts the true continuation (by the draw of its noise key) with planted mistakes.

    It keeps the hidden states it is given by request id, and checks what it is told about the branches.
    """

    def __init__(self, truth, layers=(0, 1), window=7, seed=0):
        self.truth, self.layers, self.window = truth, layers, window
        self.rng = np.random.default_rng(seed)
        self.present, self.gone, self.drafted = {}, {}, 0

    def join(self, request_ids, prompts, states):
        for request_id, prompt, rows in zip(request_ids, prompts, states, strict=True):
            assert int(request_id) not in self.present
            assert len(rows) == min(self.window, len(prompt))
            self.present[int(request_id)] = [rows.clone()]

    def leave(self, request_ids):
        for request_id in request_ids:
            self.gone[int(request_id)] = torch.cat(self.present.pop(int(request_id)))

    def draft(self, branches):
        assert set(branches.request_id.tolist()) == set(self.present)
        if self.rng.random() < 0.2:
            return None
        tokens = np.zeros((len(branches), 5), dtype=np.int64)
        for row, noise in enumerate(branches.noise):
            true = self.truth[noise.draw]
            assert true[branches.generated[row] - 1] == branches.newest[row]
            rest = true[branches.generated[row] :][:5]
            tokens[row, : len(rest)] = rest
        wrong = self.rng.random(tokens.shape) < 0.15
        tokens[wrong] = self.rng.integers(0, 50, int(wrong.sum()))
        return Drafts(tokens, self.rng.integers(0, 6, len(branches)))

    def settle(self, branches, drafts, logits):
        starts = np.cumsum(1 + drafts.lengths) - (1 + drafts.lengths)
        self.drafted += int(drafts.lengths.sum())
        assert (drafts.lengths < branches.room).all()
        return [
            self._settle(branches, drafts, logits[start:], row) for row, start in enumerate(starts.tolist())
        ]

    def _settle(self, branches, drafts, logits, row):
        settings, key, drawn = branches.settings[row], [branches.noise[row]], []
        for j in range(int(drafts.lengths[row]) + 1):
            offset = int(branches.generated[row]) + j
            noise = uniforms(key, 1, offset)[:, 0]
            if settings.coupling == "gumbel":
                noise = gumbels(key, offset, logits.shape[1])
            drawn.append(distribution.draw(logits[j : j + 1], settings, torch.from_numpy(noise)))
            if j == drafts.lengths[row] or int(drawn[-1].tokens) != drafts.tokens[row, j]:
                break

        def joined(name):
            return np.concatenate([getattr(item, name).numpy() for item in drawn])

        entropy = None if settings.entropy_top_k is None else joined("entropy")
        nats = joined("logprobs"), joined("logprobs_t1")
        return Settled(joined("tokens"), len(drawn) - 1, *nats, entropy, joined("ties").astype(np.int64))

    def fed(self, branches, spread, kept, states):
        assert len(states) == spread.sum()
        ends = np.cumsum(spread)
        for request_id, end, fed, keep in zip(branches.request_id, ends, spread, kept, strict=True):
            self.present[int(request_id)].append(states[end - fed : end - fed + keep].clone())
