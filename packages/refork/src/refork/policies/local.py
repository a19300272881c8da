"""The local policy: a Hugging Face causal model with its tokenizer, sampled by the branching decoder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from refork.decoding.backbone import Backbone
from refork.decoding.loop import Decoder, Terms
from refork.decoding.opening import DecodingPath, Forward, open_decoder
from refork.decoding.record import Sampled
from refork.decoding.score import hidden, next_distributions, score
from refork.decoding.session import Ends
from refork.decoding.states import Capture, Edit, Layer, States
from refork.errors import BadInput, CannotDo, WrongTokenizer
from refork.policies.base import (
    Continuation,
    Cost,
    PolicyCard,
    Rendered,
    Request,
    Sampling,
    stop_end,
)
from refork.policies.chat import Codec
from refork.policies.generation import end_ids, not_applied
from refork.policies.load import load_model, load_tokenizer, short_name
from refork.policies.weights import weights_digest
from refork.sampling.guide import Guide, Guides, guides_of
from refork.types import FloatArray, IntArray, Json, Message

if TYPE_CHECKING:
    from refork.decoding.live import DrawRequest
    from refork.sampling.noise import NoiseKey

_REFERENCE_BATCH = 256
_MARGIN = 32


@final
class LocalPolicy:
    """A model on this machine: token-exact, paired, scored, and open to look inside.

    ``model`` and ``codec`` are public; call :meth:`refresh` after changing weights in place. ``reference``
    is another policy with the same tokenizer, whose log-probs every continuation then carries too.
    ``memory`` is in bytes (see :class:`BranchDecoder`); a ``decoder`` of the same model brings its own.
    ``forward``: how the model is run, see :func:`open_decoder`; what was found is its ``opening``.

    Raises:
        WrongTokenizer: the reference has another tokenizer.
        CannotDo: as :func:`open_decoder`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        reference: LocalPolicy | None = None,
        memory: int | None = None,
        decoder: Decoder[Any] | None = None,
        forward: Forward = "auto",
    ) -> None:
        self.model = model
        self.codec = tokenizer if isinstance(tokenizer, Codec) else Codec(tokenizer)
        self.reference = reference
        self.opening: DecodingPath | None = None
        if decoder is None:
            decoder, self.opening = open_decoder(model, memory, forward)
        self.decoder = decoder
        self._name = name or getattr(model.config, "name_or_path", "") or type(model).__name__
        self._card: PolicyCard | None = None
        # Rows that only pad the embedding to a round size have no text, so they are never drawn.
        self._textless = tuple(range(self.codec.vocabulary, self.decoder.backbone.vocabulary))
        self._pieces: dict[int, str] = {}
        self._guides: Guides | None = None
        if reference is not None and reference.codec.digest != self.codec.digest:
            raise WrongTokenizer(
                "the reference model has another tokenizer",
                where=reference.card.name,
                hint="token log-probs compare only on the same tokens",
            )

    @classmethod
    def load(
        cls,
        path: str,
        *,
        adapter: str | None = None,
        reference: str | LocalPolicy | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        name: str | None = None,
        memory: int | None = None,
        forward: Forward = "auto",
        on_slow: Callable[[str], None] | None = None,
    ) -> LocalPolicy:
        """A policy from a folder or hub id, with an optional PEFT adapter and reference model.

        ``dtype`` is float32, bfloat16 or float16; ``device`` cpu, cuda or mps. ``on_slow`` is told where the
        model's own forward pass is used, and why.

        Raises:
            BadInput: no model there, or an unknown dtype or device.
        """
        model = load_model(str(path), adapter=adapter, dtype=dtype, device=device)
        tokenizer = load_tokenizer(str(path))
        if isinstance(reference, str):
            reference = cls.load(
                reference, dtype=dtype, device=device, memory=memory, forward=forward, on_slow=on_slow
            )
        policy = cls(
            model,
            tokenizer,
            name=name or short_name(str(path)),
            reference=reference,
            memory=memory,
            forward=forward,
        )
        if on_slow is not None and policy.opening is not None and policy.opening.slow:
            on_slow(f"{policy._name} runs slowly, by {policy.opening.describe}")
        return policy

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a turn: those after which the model's ``generate`` stops, and the tokenizer's."""
        backbone = self.decoder.backbone
        return end_ids(backbone.model, backbone.vocabulary) | frozenset(self.codec.eos_ids)

    @property
    def card(self) -> PolicyCard:
        """Name, digests and capabilities; the weights digest is computed once until :meth:`refresh`."""
        if self._card is None:
            backbone = self.decoder.backbone
            edits = [edit.to_json() for edit in self.decoder.edits]
            weights = weights_digest(self.model)
            unused = not_applied(backbone.model)
            self._card = PolicyCard(
                name="+".join([self._name, *(edit.name for edit in self.decoder.edits)]),
                kind="local",
                weights=_edited_digest(weights, edits) if edits else weights,
                tokenizer=self.codec.digest,
                # Either may be the larger: embeddings are padded, and tokenizers list ids that have no row.
                vocabulary=min(self.codec.vocabulary, backbone.vocabulary),
                capabilities=frozenset({"tokens", "logprobs", "scores", "paired", "whitebox"}),
                context=backbone.context,
                extra={
                    "architecture": type(backbone.model).__name__,
                    "dtype": str(backbone.dtype).removeprefix("torch."),
                    "device": backbone.device.type,
                    "reference": self.reference.card.weights if self.reference is not None else None,
                    "ends": sorted(self.end_ids),
                    **({"generation_config_not_applied": unused} if unused else {}),
                    **_said_of_batches(backbone),
                    **(self.opening.to_json() if self.opening is not None else {}),
                    **({"edits": edits, "unedited": weights} if edits else {}),
                },
            )
        return self._card

    def refresh(self) -> None:
        """Say that the weights were changed in place: forget what was computed from them."""
        self.decoder.cache.clear()
        self.decoder.backbone.refresh()
        self._card = None

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text, no special tokens added."""
        return self.codec.encode(text)

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        return self.codec.decode(tokens)

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens that new messages add after a context, ready for the policy's next turn."""
        return self.codec.render(history, tokens, new)

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw one continuation per request, yielded as they finish.

        A continuation also ends, with finish ``length``, where the model's context does.

        Raises:
            BadInput: an empty prefix, one that fills the context, a token outside the vocabulary, a
            distribution that
                leaves no token, logits that are not finite, a grammar that cannot be compiled.
            CannotDo: a grammar, and llguidance is not installed or the tokenizer's tokens are not bytes.
        """
        prefixes = [request.tokens for request in requests]
        drawn = self._drawn(requests, settings, None)
        if self.reference is None:
            for item in drawn:
                yield self._continuation(item, prefixes[item.index], None)
            return
        held: list[Sampled] = []
        for item in drawn:
            held.append(item)
            # Scored together: a pass of its own for each draw would cost as much as drawing it.
            if len(held) == _REFERENCE_BATCH:
                yield from self._with_reference(held, prefixes)
                held = []
        yield from self._with_reference(held, prefixes)

    def ask(
        self,
        tokens: IntArray,
        noise: NoiseKey,
        settings: Sampling,
        top: int = 0,
        without: int = -1,
        generated: int | None = None,
    ) -> DrawRequest:
        """One checked question for a live decoder of this policy; ``top`` and ``without`` as in its ``Ask``.

        ``generated``: how many of the last tokens are of the turn itself, which a grammar and penalties ask
        for.

        Raises: BadInput and CannotDo as :meth:`sample`.
        """
        from refork.decoding.live import DrawRequest

        self._check_settings(settings)
        self.check([tokens], room=1)
        lawful = settings.but(banned=settings.banned + self._textless) if self._textless else settings
        if len(set(lawful.banned)) >= self.decoder.backbone.vocabulary:
            raise BadInput("every token is banned", where="sampling", hint="leave at least one token free")
        if without >= 0:
            self._check_ids(np.array([without]), "exclude_first")
        ends, guide = self._ends(settings), None
        make = self._guide_factory(settings, ends)
        if generated is None and (make is not None or settings.penalised):
            what = "penalties cannot be counted" if make is None else "a grammar cannot be held to"
            raise CannotDo(f"{what} here: it is not known where the turn begins")
        begun = _begun(tokens, generated or 0, "request")
        if make is not None:
            guide = partial(make, begun)
        return DrawRequest(tokens, noise, lawful, ends, top, without, guide, len(begun))

    def sample_captured(
        self, requests: Sequence[Request], settings: Sampling, capture: Capture
    ) -> Iterator[tuple[Continuation, States]]:
        """Like :meth:`sample`, each with the hidden states that ``capture`` asks for, from the same pass.

        The states are those that the distribution was computed from, edits included. Continuations carry no
        log-probs of a reference model.

        Raises:
            BadInput: as :meth:`sample`, or a layer that does not exist.
            CannotDo: the hidden states of this architecture cannot be reached.
        """
        for item in self._drawn(requests, settings, capture):
            assert item.states is not None
            yield self._continuation(item, requests[item.index].tokens, None), item.states

    def edited(self, *edits: Edit) -> LocalPolicy:
        """This policy with hidden states changed as it runs: a view of the model, with its own cache.

        Edits of a view come after those it has already. Its card names them and carries another digest of
        the weights, since it draws from another distribution.

        Raises:
            BadInput: no edit, or one of a layer that does not exist.
            CannotDo: the hidden states of this architecture cannot be reached.
        """
        if not edits:
            raise BadInput("there is no edit", hint="the policy itself is the unedited one")
        decoder = self.decoder.edited(*edits)
        view = LocalPolicy(self.model, self.codec, name=self._name, reference=self.reference, decoder=decoder)
        view.opening = self.opening
        return view

    def logprobs(
        self, sequences: Sequence[IntArray], prompts: Sequence[int] | None = None
    ) -> list[FloatArray]:
        """Log-prob in nats of every token but the first given those before it, temperature 1: [n - 1] each.

        ``prompts`` is how many tokens of each are its prompt, for edits that ask (default: all of it).

        Raises:
            BadInput: an empty sequence, one longer than the context, a token outside the vocabulary, or a
                prompt that is not within its sequence.
        """
        self.check(sequences)
        return score(self.decoder, sequences, prompts=_within(prompts, sequences))

    def next_logprobs(self, prefixes: Sequence[IntArray]) -> list[FloatArray]:
        """Log-probs in nats of every token after each prefix, temperature 1 and no filter: [vocabulary] each.

        Raises:
            BadInput: as :meth:`logprobs`.
        """
        self.check(prefixes)
        # Cut off and not renormalised: a padded row keeps what the model gave it, though no draw will.
        return [
            distribution[: self.codec.vocabulary]
            for distribution in next_distributions(self.decoder, prefixes)
        ]

    def hidden_states(
        self,
        sequences: Sequence[IntArray],
        layers: Sequence[Layer],
        prompts: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
    ) -> list[FloatArray]:
        """Hidden states [layers, n - start, width] of every token from ``starts`` on (default 0).

        They are what ``output_hidden_states`` gives, edits of this policy included; ``prompts`` as in
        :meth:`logprobs`.

        Raises:
            BadInput: as :meth:`logprobs`, or a layer that does not exist.
            CannotDo: the hidden states of this architecture cannot be reached.
        """
        self.check(sequences)
        begin = [0] * len(sequences) if starts is None else starts
        return hidden(self.decoder, sequences, layers, begin, _within(prompts, sequences))

    def _drawn(
        self, requests: Sequence[Request], settings: Sampling, capture: Capture | None
    ) -> Iterator[Sampled]:
        self._check_settings(settings)
        self.check([request.tokens for request in requests], room=1)
        # Who may say nothing takes no row.
        speaking = [i for i, request in enumerate(requests) if request.max_tokens != 0]
        ends = self._ends(settings)
        make = self._guide_factory(settings, ends)
        if make is not None or ends.check is not None:
            begun = [_begun(requests[i].tokens, requests[i].generated, f"request {i}") for i in speaking]
            ends = replace(ends, begun=begun.__getitem__)
            if make is not None:
                ends = replace(ends, guide=lambda number: make(begun[number]))
        yield from (_nothing(i, settings) for i, request in enumerate(requests) if request.max_tokens == 0)
        drawn = self.decoder.sample(
            [requests[i].tokens for i in speaking],
            [requests[i].noise for i in speaking],
            settings.but(banned=settings.banned + self._textless) if self._textless else settings,
            ends,
            capture,
            self._terms([requests[i] for i in speaking], settings),
        )
        for item in drawn:
            yield replace(item, index=speaking[item.index])

    def _terms(self, requests: Sequence[Request], settings: Sampling) -> Terms | None:
        """What requests have of their own, if some have."""
        if not settings.penalised and all(
            request.max_tokens is None and request.exclude_first is None for request in requests
        ):
            return None
        limit = [settings.max_tokens if r.max_tokens is None else r.max_tokens for r in requests]
        without = [-1 if r.exclude_first is None else r.exclude_first for r in requests]
        named = np.array([r.exclude_first for r in requests if r.exclude_first is not None], dtype=np.int64)
        self._check_ids(named, "exclude_first")
        begun = [len(_begun(r.tokens, r.generated, f"request {i}")) for i, r in enumerate(requests)]
        return Terms(*(np.array(part, dtype=np.int64) for part in (limit, without, begun)))

    # -- from the decoder's words to the seam's ------------------------------------------------

    def _continuation(self, item: Sampled, prefix: IntArray, reference: FloatArray | None) -> Continuation:
        text, offsets = self.codec.pieces(item.tokens)
        return Continuation(
            index=item.index,
            tokens=item.tokens,
            text=text,
            finish=item.finish,
            offsets=offsets,
            logprobs=item.logprobs,
            logprobs_t1=item.logprobs_t1,
            ref_logprobs=reference,
            entropy=item.entropy,
            ties=item.ties,
            cost=Cost(tokens_in=len(prefix), tokens_out=len(item.tokens)),
            error=item.error,
        )

    def _with_reference(self, held: list[Sampled], prefixes: Sequence[IntArray]) -> Iterator[Continuation]:
        """Continuations with the reference model's log-probs of the same tokens."""
        if self.reference is None or not held:
            return
        whole = [np.concatenate([prefixes[item.index], item.tokens]).astype(np.int32) for item in held]
        starts = [len(prefixes[item.index]) for item in held]
        found = score(self.reference.decoder, whole, starts)
        for item, values in zip(held, found, strict=True):
            yield self._continuation(item, prefixes[item.index], values)

    def _ends(self, settings: Sampling) -> Ends:
        ids = set(settings.stop_ids)
        if not settings.ignore_eos:
            ids |= self.end_ids
        if not settings.stop:
            return Ends(frozenset(ids))
        stops = settings.stop
        last = {stop[-1] for stop in stops}
        # Decoders may drop or add white space at borders, so then every token is looked at.
        always = any(character.isspace() for character in last)
        # Tokens with text that surely hold the longest stop: a character takes at most four of them.
        enough = 4 * max(len(stop) for stop in stops) + _MARGIN

        def check(tokens: IntArray) -> bool:
            piece = self._piece(int(tokens[-1]))
            if not always and "\ufffd" not in piece and last.isdisjoint(piece):
                return False
            text, offsets = self.codec.pieces(tokens[self._reaching(tokens, enough) :])
            # Only stops that end within the newest token: an earlier one would have ended the turn then.
            before = int(offsets[-2]) if len(offsets) > 1 else 0
            return stop_end(text, stops, before) is not None

        return Ends(frozenset(ids), check)

    def _guide_factory(self, settings: Sampling, ends: Ends) -> Callable[[IntArray], Guide] | None:
        """What makes the guide of a turn from what it has said already; None where there is no grammar."""
        if settings.grammar is None:
            return None
        if self._guides is None:
            codec = self.codec
            self._guides = guides_of(codec.token_bytes, codec.special_ids, self.decoder.backbone.vocabulary)
        # A banned end can never be drawn, so a grammar must not leave a turn only that way out.
        return self._guides.factory(settings.grammar, ends.ids - set(settings.banned))

    def _reaching(self, tokens: IntArray, count: int) -> int:
        """Where the last ``count`` tokens that have text begin."""
        for place in range(len(tokens) - 1, 0, -1):
            count -= bool(self._piece(int(tokens[place])))
            if not count:
                return place
        return 0

    def _piece(self, token: int) -> str:
        """The text of one token alone, remembered."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self.codec.decode(np.array([token], dtype=np.int32))
        return found

    # -- bad input -----------------------------------------------------------------------------

    def _check_settings(self, settings: Sampling) -> None:
        for field in ("banned", "banned_first", "forced", "stop_ids"):
            self._check_ids(np.array(getattr(settings, field), dtype=np.int64), f"sampling.{field}")

    def check(self, sequences: Sequence[IntArray], room: int = 0) -> None:
        """Refuse sequences that are empty, leave no ``room`` in the context or hold unknown ids.."""
        context, seen = self.decoder.backbone.context, set()
        for row, tokens in enumerate(sequences):
            # The requests of one fork share their array.
            if id(tokens) in seen:
                continue
            seen.add(id(tokens))
            if len(tokens) == 0:
                raise BadInput("the prompt is empty", where=f"request {row}", hint="give at least one token")
            self._check_ids(tokens, f"request {row}")
            if context is not None and len(tokens) + room > context:
                raise BadInput(
                    f"{len(tokens)} tokens leave no room in a context of {context}",
                    where=f"request {row}",
                    hint="shorten the prefix, or rewrite the context into a smaller one",
                )

    def _check_ids(self, tokens: NDArray[Any], where: str) -> None:
        limit = self.decoder.backbone.vocabulary
        bad = np.flatnonzero((tokens < 0) | (tokens >= limit))
        if len(bad):
            raise BadInput(
                f"token id {int(tokens[bad[0]])} is outside the vocabulary of {limit}",
                where=f"{where}, position {int(bad[0])}",
                hint="was this recorded with another tokenizer?",
            )


def _said_of_batches(backbone: object) -> Json:
    """What a card says where the promise that batches do not change results was measured not to hold."""
    if not isinstance(backbone, Backbone) or backbone.steady:
        return {}
    return {"batches": "log-probs may differ in their last bits with what else is in a batch"}


def _begun(tokens: IntArray, said: int, where: str) -> IntArray:
    """The last ``generated`` tokens of a prefix, which are its turn's."""
    if not 0 <= said <= len(tokens):
        raise BadInput(f"a turn of {said} tokens in a prefix of {len(tokens)}", where=where)
    return tokens[len(tokens) - said :]


def _nothing(index: int, settings: Sampling) -> Sampled:
    """What a request that may say nothing says."""
    none = np.zeros(0, dtype=np.float32)
    entropy = None if settings.entropy_top_k is None else none
    return Sampled(index, np.zeros(0, dtype=np.int32), "length", none, none, entropy, 0)


def _within(prompts: Sequence[int] | None, sequences: Sequence[IntArray]) -> Sequence[int] | None:
    """Prompt lengths that lie in their sequences."""
    if prompts is None:
        return None
    if len(prompts) != len(sequences):
        raise BadInput(f"{len(prompts)} prompts for {len(sequences)} sequences")
    for row, (end, tokens) in enumerate(zip(prompts, sequences, strict=True)):
        if not 0 < end <= len(tokens):
            raise BadInput(
                f"a prompt of {end} tokens in a sequence of {len(tokens)}", where=f"sequence {row}"
            )
    return prompts


def _edited_digest(weights: str, edits: list[Json]) -> str:
    """A digest of weights whose hidden states are changed on the way."""
    mixed = json.dumps([weights, edits], sort_keys=True)
    return hashlib.sha256(mixed.encode()).hexdigest()
