"""A policy and its reference: log-probs of the same tokens under both, kept once computed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

from refork.errors import BadInput, WrongTokenizer
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.tree.score import Producer
from refork.types import FloatArray, IntArray, Json, Message
from refork_methods.implicit.aggregate import PairLogprobs, pair_logprobs
from refork_methods.implicit.chunked import model_logprobs
from refork_methods.implicit.render import (
    Actions,
    ActionTokens,
    Render,
    action_tokens,
    cut_left,
    flat_pieces,
    template_pieces,
    vocabulary_difference,
)
from refork_methods.implicit.soft_values import check_beta

_AT_ONCE = 16
#: Where the released code cuts; ours also cuts at the smaller context of the two models.
LONGEST = 16_384


@final
class ImplicitPair:
    """Two checkpoints with one tokenizer, as a grader of steps.

    ``beta`` is the price of divergence the policy was trained with; where it is not known, scores compare
    within this pair only. ``cache``: a folder that keeps log-probs per (weights, tokens). ``chunked``
    reads the vocabulary in chunks instead of whole rows.

    Raises:
        WrongTokenizer: the vocabularies differ.
        BadInput: the weights are the same, so every score would be 0.
    """

    def __init__(
        self,
        policy: LocalPolicy,
        reference: LocalPolicy,
        *,
        beta: float = 1.0,
        cache: Path | None = None,
        chunked: bool = False,
        longest: int = LONGEST,
    ) -> None:
        difference = vocabulary_difference(policy.codec, reference.codec)
        if difference is not None:
            raise WrongTokenizer(
                f"policy and reference have other vocabularies: {difference}",
                where=f"{policy.card.name} and {reference.card.name}",
                hint="a log-ratio needs the same tokens; take a reference of the same family",
            )
        if policy.card.weights == reference.card.weights:
            raise BadInput(
                "policy and reference have the same weights, so every score would be 0",
                where=f"{policy.card.name} and {reference.card.name}",
                hint="the reference is the checkpoint that post-training began from",
            )
        if longest < 2:
            raise BadInput(f"a limit of {longest} tokens leaves nothing to score", where="longest")
        self.policy, self.reference = policy, reference
        self.beta = check_beta(beta)
        self.cache, self.chunked = cache, chunked
        contexts = [c for p in (policy, reference) if (c := p.card.context) is not None]
        self.longest = min([longest, *contexts])

    @property
    def names(self) -> Json:
        """Who the two are: name and weights digest of each."""
        return {
            "policy": {"name": self.policy.card.name, "weights": self.policy.card.weights},
            "reference": {"name": self.reference.card.name, "weights": self.reference.card.weights},
        }

    @property
    def producer(self) -> Producer:
        """Who gives the scores: both weights and beta."""
        return Producer("implicit-advantage", "1", {**self.names, "beta": self.beta})

    def render(
        self, messages: Sequence[Message], render: Render | None = None, actions: Actions = "assistant"
    ) -> ActionTokens:
        """Tokens and actions of a conversation, cut from the left where it is too long.

        ``render`` None: the policy's chat template where it has one, else ``flat``.

        Raises:
            BadInput: no action, or actions other than the assistant's under a template.
            WrongTokenizer: the two tokenizers read the text as other tokens.
            CannotDo: the template rewrites what came before.
        """
        chosen = render or ("template" if self.policy.codec.has_template else "flat")
        if chosen == "flat":
            pieces = flat_pieces(messages, actions)
        elif actions != "assistant":
            raise BadInput(
                "a chat template knows only the assistant's actions", hint="use --render flat with --actions"
            )
        else:
            pieces = template_pieces(messages, self.policy.codec)
        found = action_tokens(pieces, self.policy.codec, self.reference.codec, bos=chosen == "flat")
        return cut_left(found, self.longest)

    def logprobs(self, rendered: Sequence[ActionTokens], progress: Progress = silent) -> list[PairLogprobs]:
        """Log-probs of every rendered trajectory; the first token of a sequence, which has none, is left out.

        What is in the cache is not computed again, so a call that was stopped goes on.

        Raises:
            BadInput: a log-prob that is not finite, with its token named.
        """
        sequences = [item.tokens for item in rendered]
        both = self.both(sequences, progress)
        found = []
        for row, (item, mine, theirs) in enumerate(zip(rendered, *both, strict=True)):
            names = [self.policy.decode(item.tokens[i : i + 1]) for i in range(1, len(item.tokens))]
            found.append(
                pair_logprobs(
                    mine, theirs, item.step_id[1:], steps=len(item.messages), cut=item.cut, names=names,
                    where=f"trajectory {row}",
                )
            )  # fmt: skip
        return found

    def both(
        self, sequences: Sequence[IntArray], progress: Progress = silent
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Log-probs of every token but the first under policy and reference, [n - 1] each, unchecked."""
        mine = self._all(self.policy, sequences, progress, "policy log-probs")
        return mine, self._all(self.reference, sequences, progress, "reference log-probs")

    def _all(
        self, model: LocalPolicy, sequences: Sequence[IntArray], progress: Progress, stage: str
    ) -> list[FloatArray]:
        found: dict[int, FloatArray] = {}
        files = [self._file(model, tokens) for tokens in sequences]
        for row, file in enumerate(files):
            kept = _read(file, len(sequences[row]) - 1)
            if kept is not None:
                found[row] = kept
        open_ = [row for row in range(len(sequences)) if row not in found]
        progress(stage, len(found), len(sequences))
        for start in range(0, len(open_), _AT_ONCE):
            rows = open_[start : start + _AT_ONCE]
            part = [sequences[row] for row in rows]
            values = model_logprobs(model, part) if self.chunked else model.logprobs(part)
            for row, value in zip(rows, values, strict=True):
                found[row] = value
                _write(files[row], value)
            progress(stage, len(found), len(sequences))
        return [found[row] for row in range(len(sequences))]

    def _file(self, model: LocalPolicy, tokens: IntArray) -> Path | None:
        if self.cache is None:
            return None
        # The byte order is named, so that machines that share a cache agree on the key.
        text = hashlib.blake2b(np.asarray(tokens, dtype="<i4").tobytes(), digest_size=16).hexdigest()
        return self.cache / str(model.card.weights)[:32] / f"{text}.npy"


def _read(file: Path | None, size: int) -> FloatArray | None:
    """Kept log-probs; None where there are none, or the file is damaged and will be written again."""
    if file is None or not file.exists():
        return None
    try:
        values = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return np.asarray(values, dtype=np.float32) if values.shape == (size,) else None


def _write(file: Path | None, values: FloatArray) -> None:
    """Keep log-probs in one step: another process sees the whole file or none."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
    with os.fdopen(handle, "wb") as out:
        np.save(out, values, allow_pickle=False)
    Path(part).replace(file)
