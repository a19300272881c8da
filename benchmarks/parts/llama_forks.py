"""llama.cpp beside the branching decoder: the same weights, trace, points and draws, in its own process."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from parts.peer_env import Worker, peer_python

LLAMA = ("llama-cpp-python==0.3.36", "gguf==0.19.0")
#: Points that llama.cpp draws at together, and its keys and values: 1 float16 (its default), 0 float32. It
#: holds at most 255 branches.
BEST = (1, 1)
TRIED = [(points, kind) for points in (1, 2, 3) for kind in (0, 1) if (points, kind) != BEST]
#: Largest difference of logits over the largest logit; keys and values in float16 make a few in a thousand.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Task:
    """What to draw: ``draws`` branches of ``tokens`` tokens behind each prefix of a trace, ``cuts`` long."""

    trace: list[int]
    cuts: list[int]
    draws: int
    tokens: int


@dataclass(frozen=True)
class Forks:
    """A task that llama.cpp is ready to do."""

    worker: Worker
    task: Task
    label: str

    def shared(self) -> float:
        """All branches of several points in one batch, the trace decoded once; seconds by its own clock."""
        return self._do("fork")

    def one_by_one(self) -> float:
        """One branch after another through the high-level class; seconds by its own clock."""
        return self._do("one_by_one")

    def _do(self, how: str) -> float:
        told = self.worker.ask(do=how, trace=self.task.trace, cuts=self.task.cuts)
        assert told["found"] == len(self.task.cuts) * self.task.draws * self.task.tokens
        return float(told["seconds"])


def llama_python(*, make: bool) -> str | None:
    """A Python with llama.cpp, compiled for this processor; None where there is none."""
    return peer_python(LLAMA, "REFORK_LLAMA", make=make, CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF")


@contextlib.contextmanager
def llama(model: PreTrainedModel, task: Task, python: str, points: int, kind: int) -> Iterator[Forks]:
    """llama.cpp with a Llama's weights, checked against the model's own logits.

    Raises:
        RuntimeError: its logits are those of another model.
    """
    config = model.config
    shape = {
        "layers": config.num_hidden_layers, "width": config.hidden_size, "vocabulary": config.vocab_size,
        "heads": config.num_attention_heads, "inner": config.intermediate_size,
        "positions": config.max_position_embeddings, "epsilon": config.rms_norm_eps,
        "rope": config.rope_parameters["rope_theta"],
    }  # fmt: skip
    script = Path(__file__).parent / "llama_worker.py"
    with tempfile.TemporaryDirectory() as folder, Worker(python, script) as worker:
        weights = Path(folder) / "weights.npz"
        np.savez(weights, **{name: value.numpy() for name, value in model.state_dict().items()})
        worker.ask(
            do="load", weights=str(weights), file=str(Path(folder) / "model.gguf"), shape=shape,
            alive=points * task.draws, draws=task.draws, tokens=task.tokens, trace=len(task.trace),
            threads=torch.get_num_threads(), cache=kind,
        )  # fmt: skip
        cut, then = task.cuts[-1], [3, 1, 4]
        told = torch.tensor(worker.ask(do="logits", trace=task.trace, cut=cut, then=then)["found"])
        with torch.inference_mode():
            wanted = model(torch.tensor([task.trace[:cut] + then])).logits[0, cut - 1 :]
        gap = float((told - wanted).abs().max() / wanted.abs().max())
        if gap > TOLERANCE:
            raise RuntimeError(f"llama.cpp computes another model: its logits differ by {gap:.1%}")
        yield Forks(worker, task, f"{points} points at a time, float{32 - 16 * kind} cache")
