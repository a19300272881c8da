"""Runs under a Python with llama-cpp-python and gguf: branches of one trace by llama.cpp, on request.

A request is a line of JSON with ``do``. ``load`` writes a Llama's weights (an .npz file) as GGUF in float32
and opens it. ``fork`` draws branches at many points of a trace: the trace is decoded once, each point's
branches share its cells, and every pass feeds one token of every branch of several points. ``one`` draws them
one after another through the high-level class, which keeps the common prefix. ``logits`` is for checking.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

import gguf
import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

OUT = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

#: Parts of a layer, ours and theirs.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(weights: str, shape: dict[str, Any], file: str) -> None:
    """A Llama's weights as llama.cpp wants them: rotary pairs lie side by side there."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(shape["positions"])
    writer.add_embedding_length(shape["width"])
    writer.add_feed_forward_length(shape["inner"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["heads"])
    writer.add_layer_norm_rms_eps(shape["epsilon"])
    writer.add_rope_freq_base(shape["rope"])
    writer.add_rope_dimension_count(shape["width"] // shape["heads"])
    writer.add_vocab_size(shape["vocabulary"])
    writer.add_tokenizer_model("no_vocab")
    names = WHOLE | {
        f"model.layers.{layer}.{mine}": f"blk.{layer}.{theirs}"
        for layer in range(shape["layers"])
        for mine, theirs in LAYER.items()
    }
    with np.load(weights) as given:
        for mine, theirs in names.items():
            w = given[mine + ".weight"].astype(np.float32)
            if theirs.endswith(("attn_q", "attn_k")):
                heads, wide = shape["heads"], w.shape[1]
                w = w.reshape(heads, 2, -1, wide).swapaxes(1, 2).reshape(-1, wide)
            writer.add_tensor(theirs + ".weight", np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Forks:
    """A context with one sequence for the trace and one for each branch that is alive."""

    def __init__(self, file: str, asked: dict[str, Any]) -> None:
        self.vocabulary = asked["shape"]["vocabulary"]
        self.alive, self.draws, self.length = asked["alive"], asked["draws"], asked["tokens"]
        self.threads, self.file = asked["threads"], file
        options = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(file.encode(), options)
        if not self.model:
            raise RuntimeError("llama.cpp did not open the model")
        plan = lib.llama_context_default_params()
        plan.n_ctx = asked["trace"] + self.alive * (self.length + 1) + 32
        plan.n_batch = plan.n_ubatch = max(self.alive, asked["trace"]) + 8
        plan.n_seq_max = self.alive + 1
        plan.n_threads = plan.n_threads_batch = self.threads
        plan.kv_unified = True
        plan.type_k = plan.type_v = asked["cache"]
        plan.no_perf = True
        self.context = lib.llama_init_from_model(self.model, plan)
        if not self.context:
            raise RuntimeError("llama.cpp made no context")
        self.memory = lib.llama_get_memory(self.context)
        self.batch = lib.llama_batch_init(plan.n_batch, 0, self.alive + 1)
        # Passes over branches differ in tokens and positions only, so the rest is filled in once.
        self.steps = lib.llama_batch_init(self.alive, 0, 1)
        for row in range(self.alive):
            self.steps.n_seq_id[row], self.steps.seq_id[row][0], self.steps.logits[row] = 1, 1 + row, True
        self.rng = np.random.default_rng(0)

    def decode(
        self, tokens: list[int], positions: list[int], owners: list[list[int]], wanted: list[bool]
    ) -> NDArray[np.float32]:
        """One pass; the logits of the tokens wanted, [wanted, vocabulary]."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, positions[i], wanted[i]
            batch.n_seq_id[i] = len(owners[i])
            for k, owner in enumerate(owners[i]):
                batch.seq_id[i][k] = owner
        return self._run(batch, sum(wanted))

    def step(self, tokens: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """One pass over the first branches, a token each; their logits, [branches, vocabulary]."""
        rows = self.steps.n_tokens = len(tokens)
        np.ctypeslib.as_array(self.steps.token, (rows,))[:] = tokens
        np.ctypeslib.as_array(self.steps.pos, (rows,))[:] = positions
        return self._run(self.steps, rows)

    def _run(self, batch: Any, rows: int) -> NDArray[np.float32]:
        if lib.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        size = rows * self.vocabulary
        pointer = ctypes.cast(lib.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float * size))
        return np.frombuffer(pointer.contents, np.float32).reshape(rows, self.vocabulary)

    def draw(self, logits: NDArray[np.float32], each: int = 1) -> NDArray[np.int64]:
        """Tokens at temperature 1, ``each`` from every row, by the largest of logits with Gumbel noise."""
        shape = (len(logits), each, self.vocabulary)
        noise = -np.log(self.rng.standard_exponential(shape, dtype=np.float32))
        return np.asarray((logits[:, None] + noise).argmax(-1)).reshape(-1)

    def start(self, trace: list[int]) -> None:
        """Decode the trace into the sequence of its own."""
        lib.llama_memory_clear(self.memory, True)
        n = len(trace)
        self.decode(trace, list(range(n)), [[0]] * n, [False] * (n - 1) + [True])

    def open_points(self, trace: list[int], cuts: list[int]) -> NDArray[np.float32]:
        """Give each point's branches its prefix; the logits behind it, [points, vocabulary]."""
        owners = []
        for row, cut in enumerate(cuts):
            mine = list(range(1 + row * self.draws, 1 + (row + 1) * self.draws))
            for one in mine:
                lib.llama_memory_seq_rm(self.memory, one, -1, -1)
                lib.llama_memory_seq_cp(self.memory, 0, one, 0, cut - 1)
            owners.append(mine)
        # One cell serves all branches of a point: the last token of its prefix belongs to all of them.
        return self.decode([trace[c - 1] for c in cuts], [c - 1 for c in cuts], owners, [True] * len(cuts))

    def fork(self, trace: list[int], cuts: list[int]) -> int:
        """Draw all branches; how many tokens."""
        self.start(trace)
        together = max(1, self.alive // self.draws)
        said = 0
        for first in range(0, len(cuts), together):
            part = cuts[first : first + together]
            tokens = self.draw(self.open_points(trace, part), self.draws)
            at = np.repeat(np.array(part), self.draws)
            said += len(tokens)
            for step in range(self.length - 1):
                tokens = self.draw(self.step(tokens, at + step))
                said += len(tokens)
            for branch in range(1, 1 + len(tokens)):
                lib.llama_memory_seq_rm(self.memory, branch, -1, -1)
        return said

    def logits(self, trace: list[int], cut: int, then: list[int]) -> list[list[float]]:
        """Logits behind a prefix and behind each of the tokens that follow it in the first branch."""
        self.start(trace)
        rows = [self.open_points(trace, [cut])[0].tolist()]
        for step, token in enumerate(then):
            rows.append(self.step(np.array([token]), np.array([cut + step]))[0].tolist())
        return rows

    def one_by_one(self, trace: list[int], cuts: list[int]) -> int:
        """The same branches through the high-level class, which keeps what prompts have in common."""
        model = lib.Llama(
            self.file, n_ctx=512, n_threads=self.threads, n_threads_batch=self.threads, verbose=False
        )
        said = 0
        for cut in cuts:
            for _ in range(self.draws):
                drawn = model.generate(
                    trace[:cut], temp=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0
                )
                said += sum(1 for _, _ in zip(range(self.length), drawn, strict=False))
        return said


def main() -> None:
    """Answer until the other side closes."""
    lib.llama_backend_init()
    forks: Forks | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.perf_counter()
        if asked["do"] == "load":
            write_gguf(asked["weights"], asked["shape"], asked["file"])
            forks = Forks(asked["file"], asked)
            found: Any = lib.llama_print_system_info().decode()
        else:
            assert forks is not None
            work = {"fork": forks.fork, "one_by_one": forks.one_by_one, "logits": forks.logits}[
                asked.pop("do")
            ]
            found = work(**asked)
        print(json.dumps({"seconds": time.perf_counter() - begun, "found": found}), file=OUT, flush=True)


if __name__ == "__main__":
    main()
