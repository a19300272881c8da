"""A local policy that draws with a drafter: wherever a policy is taken, this one can be given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, final

from refork.errors import CannotDo
from refork.policies.base import Continuation, PolicyCard, Rendered, Request, Sampling
from refork.policies.chat import Codec
from refork.policies.local import LocalPolicy
from refork.policies.weights import weights_digest
from refork.types import FloatArray, IntArray, Message
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.checkpoint import load_draft
from refork_methods.speculate.context import Proposer, as_proposer
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.model import DraftModel
from refork_methods.speculate.schedule import MEASURED, PrefixScheduler
from refork_methods.speculate.speculator import Listener, ModelSpeculator, SpeculationStats
from refork_methods.speculate.step_cost import StepCost
from refork_methods.speculate.verification import Rule


@final
class SpeculativePolicy:
    """The policy of a :class:`SpeculativeDecoder`: what it says has the law of the target's own words.

    Its card carries the target's weights, since those decide what is said, and names drafter and rule.
    It is ``paired`` under the coupled rule only: then equal noise gives what the target alone gives.
    Under the rejection rule what is drawn beside may change what is said, never its law.
    """

    def __init__(self, decoder: SpeculativeDecoder) -> None:
        self.decoder = decoder
        self.target = decoder.target
        self._card: PolicyCard | None = None

    @property
    def card(self) -> PolicyCard:
        """The target's card, with the drafter's digest and the rule in its ``extra``."""
        if self._card is None:
            card, decoder = self.target.card, self.decoder
            without = {"whitebox"} if decoder.rule == "coupled" else {"whitebox", "paired"}
            drafted = {
                "drafter": weights_digest(decoder.draft),
                "kind": decoder.draft.config.kind,
                "rule": decoder.rule,
                "max_draft_tokens": decoder.max_draft_tokens,
            }
            self._card = replace(
                card,
                name=f"{card.name}+{decoder.draft.config.kind}-{decoder.rule}",
                capabilities=card.capabilities - without,
                extra={**card.extra, "speculate": drafted},
            )
        return self._card

    @property
    def stats(self) -> SpeculationStats:
        """What all draws so far came to."""
        return self.decoder.stats

    @property
    def codec(self) -> Codec:
        """The target's tokenizer."""
        return self.target.codec

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text, no special tokens added."""
        return self.target.encode(text)

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        return self.target.decode(tokens)

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens that new messages add after a context, ready for the policy's next turn."""
        return self.target.render(history, tokens, new)

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw one continuation per request, yielded as they finish. Raises BadInput as the target does."""
        return self.decoder.sample(requests, settings)

    def logprobs(
        self, sequences: Sequence[IntArray], prompts: Sequence[int] | None = None
    ) -> list[FloatArray]:
        """Log-prob in nats of every token but the first given those before, temperature 1: [n - 1] each."""
        return self.target.logprobs(sequences, prompts)

    def next_logprobs(self, prefixes: Sequence[IntArray]) -> list[FloatArray]:
        """Log-probs in nats of every token after each prefix, temperature 1, no filter: [vocabulary] each."""
        return self.target.next_logprobs(prefixes)


def _measured(cost: Path | None) -> PrefixScheduler | None:
    """The schedule of a cost table's file."""
    return None if cost is None else PrefixScheduler(StepCost.load(cost), beyond="cap", margin=MEASURED)


def _calibrated(file: Path | None) -> SequentialTemperatureScaling | None:
    return None if file is None else SequentialTemperatureScaling.load(file)


def open_drafter(folder: Path, target: LocalPolicy) -> Proposer:
    """The drafter of a folder, for this target.

    Raises:
        BadInput: there is no drafter.
        WrongTokenizer, WrongWeights: it was trained for another model.
    """
    return as_proposer(load_draft(folder, target))


def speculative(
    target: LocalPolicy,
    folder: Path,
    *,
    rule: Rule = "coupled",
    cost: Path | None = None,
    calibration: Path | None = None,
    max_draft_tokens: int | None = None,
    on_rounds: Listener | None = None,
) -> SpeculativePolicy:
    """A target with the drafter of a folder, from files: a cost table schedules drafts by load.

    Raises:
        BadInput: a file that is not there or is something else.
        WrongTokenizer, WrongWeights: the drafter was trained for another model.
    """
    decoder = SpeculativeDecoder(
        target,
        open_drafter(folder, target),
        rule=rule,
        max_draft_tokens=max_draft_tokens,
        scheduler=_measured(cost),
        calibration=_calibrated(calibration),
        on_rounds=on_rounds,
    )
    return SpeculativePolicy(decoder)


# A drafter as a server drafts with it.


def open_speculator(
    folder: Path,
    policy: LocalPolicy,
    *,
    rule: Literal["coupled", "rejection"],
    cost: Path | None,
    calibration: Path | None,
    most: int | None,
) -> ModelSpeculator:
    """The speculator of a drafter's folder, scheduled by a cost table where there is one.

    Raises:
        BadInput: there is no drafter, or no table or calibration.
        Mismatch: it was trained for another model.
        CannotDo: its layout is not one that a batch of branches can be drafted with.
    """
    draft = load_draft(folder, policy)
    if not isinstance(draft, DraftModel):
        raise CannotDo(
            "this kind of drafter cannot draft for a batch of branches",
            where=str(folder),
            hint="train one of kind dspark or dflash",
        )
    return ModelSpeculator(
        draft,
        rule=rule,
        scheduler=_measured(cost),
        calibration=_calibrated(calibration),
        max_draft_tokens=most,
        eos=policy.end_ids,
    )
