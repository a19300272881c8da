"""Direct preference optimisation on a single token: the loss, and a training call.

With one token on each side the normaliser of the softmax cancels::

    log pi(c) - log pi(r) = z_c - z_r

so the loss depends on two logits of the last position and its gradient is exactly 0 in all others.

Source: arXiv 2305.18290 (DPO); arXiv 2606.25524 (on cliff tokens). The trainer released with the latter
appends the end-of-sequence token to both sides, so that its loss also moves P(end | token);
``eos_compat`` does the same, and is off by default.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.cliff.pairs import Pair
from refork_methods.train.preference import single_token_loss
from refork_methods.train.sft import SftSettings, learning_rate

BETA = 0.05


def token_margin(logits: Tensor, chosen: Tensor, rejected: Tensor) -> Tensor:
    """Log pi(chosen) - log pi(rejected) in nats [b], of ``logits`` [b, v]: a difference of two logits."""
    return (logits.gather(1, chosen[:, None]) - logits.gather(1, rejected[:, None]))[:, 0]


def single_token_dpo(
    logits: Tensor,
    chosen: Tensor,
    rejected: Tensor,
    reference: Tensor,
    beta: float = BETA,
    *,
    end: Tensor | None = None,
) -> Tensor:
    """Losses ``-log sigmoid(beta * (margin - reference))``, [b].

    ``logits`` [b, v] of the position; ``chosen`` and ``rejected`` [b] token ids; ``reference`` [b]: the
    reference model's margin. ``end`` [b] (``eos_compat``): how much more the policy than the reference
    favours ending after the chosen token over ending after the rejected one, added to the margin.
    """
    against = reference if end is None else reference - end
    return single_token_loss(logits, chosen, rejected, against, beta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """A low-rank adapter on all linear layers."""

    rank: int = 32
    alpha: int = 64
    dropout: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CliffDpoSettings:
    """The released trainer's settings; a tiny model needs a larger ``learning_rate``.

    ``rows`` pairs make a forward pass, ``accumulate`` of those an update. ``warmup`` and ``held_out`` are
    shares. ``lora`` None trains all weights.
    """

    beta: float = BETA
    learning_rate: float = 5e-6
    epochs: int = 1
    rows: int = 4
    accumulate: int = 16
    warmup: float = 0.1
    max_grad_norm: float = 1.0
    held_out: float = 0.1
    lora: Lora | None = field(default_factory=Lora)
    eos_compat: bool = False
    seed: int = 42

    def __post_init__(self) -> None:
        if self.beta <= 0 or self.learning_rate <= 0 or self.max_grad_norm <= 0:
            raise BadInput("beta, learning_rate and max_grad_norm must be above 0", where="cliff DPO")
        if min(self.epochs, self.rows, self.accumulate) < 1 or not 0 <= self.held_out < 1:
            raise BadInput(
                "epochs, rows and accumulate are at least 1; held_out lies in [0, 1)", where="cliff DPO"
            )


@dataclass(frozen=True, slots=True)
class CliffDpo:
    """What a training did: a record per update, pairs held out and their accuracy, loss tokens, seconds."""

    log: list[Json]
    pairs: int
    held_out: int
    accuracy_before: float | None
    accuracy_after: float | None
    loss_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Row:
    """A pair with the reference model's margins."""

    pair: Pair
    margin: float
    end: float


def cliff_dpo(
    policy: LocalPolicy,
    pairs: Sequence[Pair],
    settings: CliffDpoSettings | None = None,
    progress: Progress = silent,
) -> CliffDpo:
    """Train a local policy in place on pairs of single tokens; the reference is the policy as it came.

    Pairs of one cliff stay together on one side of the held-out split.

    Raises:
        BadInput: no pairs, a token outside the vocabulary, or a gradient that is not finite.
    """
    chosen = settings or CliffDpoSettings()
    started = time.monotonic()
    if not pairs:
        raise BadInput("there are no pairs to train on", hint="refork cliff pairs")
    size = policy.decoder.backbone.vocabulary
    for pair in pairs:
        worst = max(*pair.prompt_tokens, pair.chosen, pair.rejected)
        if worst >= size:
            raise BadInput(f"token id {worst} is outside the vocabulary of {size}", where="preference pair")
    model = policy.model
    model.eval()
    with torch.no_grad():
        rows = [
            _Row(pair, float(m), float(e))
            for part in _parts(pairs, chosen.rows)
            for pair, m, e in zip(part, *_margins(policy, part, chosen.eos_compat), strict=True)
        ]
    # From here on the weights change in place; the rows hold all that is left of the reference.
    trained, kept = _split(rows, chosen)
    before = _accuracy(policy, kept, chosen)
    with torch.random.fork_rng(devices=[]):
        # An adapter is drawn by chance, too.
        torch.manual_seed(chosen.seed)
        log = _train(policy, trained, chosen, progress)
    policy.refresh()
    loss_tokens = len(trained) * chosen.epochs * (4 if chosen.eos_compat else 2)
    after = _accuracy(policy, kept, chosen)
    return CliffDpo(log, len(trained), len(kept), before, after, loss_tokens, time.monotonic() - started)


def _parts(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _split(rows: list[_Row], settings: CliffDpoSettings) -> tuple[list[_Row], list[_Row]]:
    names = sorted({row.pair.cliff for row in rows})
    order = np.random.default_rng(settings.seed).permutation(len(names))
    out = {names[i] for i in order[: int(settings.held_out * len(names))]}
    return [r for r in rows if r.pair.cliff not in out], [r for r in rows if r.pair.cliff in out]


def _last_logits(model: Any, sequences: Sequence[Sequence[int]], wanted: Sequence[int]) -> Tensor:
    """Logits [b, v] at position ``wanted[i]`` of each sequence, padded on the right."""
    device = next(model.parameters()).device
    length = max(map(len, sequences))
    tokens = torch.zeros((len(sequences), length), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for i, row in enumerate(sequences):
        tokens[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    out = model(input_ids=tokens.to(device), attention_mask=mask.to(device), use_cache=False).logits
    picked: Tensor = out[torch.arange(len(sequences)), torch.tensor(wanted)].float()
    return picked


def _margins(policy: LocalPolicy, pairs: Sequence[Pair], ends: bool) -> tuple[Tensor, Tensor]:
    """Margins [b] of the tokens, and of ending after them (zeros without ``ends``), with gradients."""
    model = policy.model
    prompts = [pair.prompt_tokens for pair in pairs]
    logits = _last_logits(model, prompts, [len(p) - 1 for p in prompts])
    device = logits.device
    chosen, rejected = (
        torch.tensor([getattr(pair, side) for pair in pairs], device=device)
        for side in ("chosen", "rejected")
    )
    margin = token_margin(logits, chosen, rejected)
    if not ends:
        return margin, torch.zeros_like(margin)
    stop = int(policy.codec.eos_ids[0])
    sides = []
    for side in ("chosen", "rejected"):
        longer = [(*pair.prompt_tokens, getattr(pair, side)) for pair in pairs]
        distribution = torch.log_softmax(_last_logits(model, longer, [len(p) - 1 for p in longer]), dim=-1)
        sides.append(distribution[:, stop])
    return margin, sides[0] - sides[1]


def _loss(policy: LocalPolicy, part: Sequence[_Row], settings: CliffDpoSettings) -> Tensor:
    margin, end = _margins(policy, [row.pair for row in part], settings.eos_compat)
    reference = torch.tensor([row.margin + row.end for row in part], device=margin.device)
    return -torch.nn.functional.logsigmoid(settings.beta * (margin + end - reference))


def _accuracy(policy: LocalPolicy, rows: Sequence[_Row], settings: CliffDpoSettings) -> float | None:
    """Share of pairs whose chosen token is the likelier one; None without pairs."""
    if not rows:
        return None
    policy.model.eval()
    with torch.no_grad():
        margins = [_margins(policy, [r.pair for r in p], False)[0] for p in _parts(rows, settings.rows)]
    return float((torch.cat(margins) > 0).float().mean())


def _train(
    policy: LocalPolicy, rows: list[_Row], settings: CliffDpoSettings, progress: Progress
) -> list[Json]:
    model = policy.model
    if settings.lora is not None:
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(
            r=settings.lora.rank, lora_alpha=settings.lora.alpha, lora_dropout=settings.lora.dropout,
            target_modules="all-linear", task_type="CAUSAL_LM",
        )  # fmt: skip
        with warnings.catch_warnings():
            # PEFT asks transformers for a property by its older name.
            warnings.simplefilter("ignore", FutureWarning)
            model = policy.model = get_peft_model(model, adapter)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
    batch = settings.rows * settings.accumulate
    total = -(-len(rows) // batch) * settings.epochs
    plan = SftSettings(
        steps=total, learning_rate=settings.learning_rate, final_rate=0.0, warmup=int(settings.warmup * total)
    )
    rng = np.random.default_rng(settings.seed)
    log: list[Json] = []
    for _ in range(settings.epochs):
        order = [rows[i] for i in rng.permutation(len(rows))]
        for group in _parts(order, batch):
            for setting in optimizer.param_groups:
                setting["lr"] = learning_rate(len(log), plan)
            log.append(_update(policy, optimizer, weights, group, settings) | {"step": len(log)})
            progress("training on pairs", len(log), total)
    model.eval()
    return log


def _update(
    policy: LocalPolicy,
    optimizer: Any,
    weights: list[Tensor],
    group: Sequence[_Row],
    settings: CliffDpoSettings,
) -> Json:
    policy.model.train()
    optimizer.zero_grad(set_to_none=True)
    loss = 0.0
    for part in _parts(group, settings.rows):
        # Over the whole group's size: a mean of each part would give pairs of a short last part more weight.
        part_loss = _loss(policy, part, settings).sum() / len(group)
        part_loss.backward()  # type: ignore[no-untyped-call]
        loss += float(part_loss.detach())
    norm = torch.nn.utils.clip_grad_norm_(weights, settings.max_grad_norm)
    if not bool(torch.isfinite(norm)):
        optimizer.zero_grad(set_to_none=True)
        raise BadInput("the gradient is not finite; no update was made", where="cliff DPO")
    optimizer.step()
    return {"loss": loss, "grad_norm": float(norm), "pairs": len(group)}
