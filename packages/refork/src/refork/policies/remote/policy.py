"""A policy on an OpenAI-compatible server: vLLM, SGLang, llama.cpp, ours, or any that speaks chat.

Where the server takes and returns token ids, draws are token-exact. Elsewhere they are chat replies, and
whatever needs token ids is refused with the reason, before anything is asked of the server.

The server's own generator draws; every call of a draw gets a seed of its own address. So draws are paired
only if the server honours seeds, which the probe tests, and ``coupling`` has no meaning here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any, TypeVar, final

import numpy as np

from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import Continuation, PolicyCard, Rendered, Request, Sampling, refuse_grammar
from refork.policies.chat import Codec
from refork.policies.remote.calls import CallFailed, Patience
from refork.policies.remote.draw import Asker, PartialTurn
from refork.policies.remote.endpoint import Endpoint
from refork.policies.remote.probe import ServerAbilities, probe
from refork.policies.sent import REQUEST
from refork.types import FloatArray, IntArray, Message, token_array

T = TypeVar("T")

_MOST_TOP = 20
#: How a token is kept from coming, by whether the server obeys a logit_bias of -100.
_BANS = {
    True: "a logit_bias of -100; what comes nevertheless is drawn anew, so the ban is exact",
    False: "drawn anew where they come, so the ban is exact; the server does not obey logit_bias",
}
#: The penalties, each with the value that changes nothing.
_NEUTRAL = {"repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0}
#: Which penalties a server defines as :class:`Sampling` does, by its kind. Others count a prompt's tokens too
#: (llama.cpp), or a repetition penalty's by what was said alone (SGLang).
_PENALTIES = {
    "vLLM": frozenset(_NEUTRAL),
    "refork": frozenset(_NEUTRAL),
    "SGLang": frozenset({"frequency_penalty", "presence_penalty"}),
    "llama.cpp": frozenset({"repetition_penalty"}),
}
#: Settings that only a server which takes token ids can honour.
_EXACT = ("top_k", "stop_ids", "banned", "banned_first", "forced", "ignore_eos", "entropy_top_k")
#: OpenAI's interface defines these two for chats.
_CHAT_PENALTIES = frozenset({"frequency_penalty", "presence_penalty"})


@final
class RemotePolicy:
    """A model behind an OpenAI-compatible address.

    ``tokenizer``: a folder, hub id, Hugging Face tokenizer or :class:`Codec`; without one the server's own
    ``/tokenize`` is used where it has one. ``price``: money per million tokens (in, out).
    ``on_wait`` hears, from any thread, what a call waits for.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None = None,
        *,
        tokenizer: Any = None,
        concurrency: int = 8,
        timeout: float = 120.0,
        patience: Patience | None = None,
        price: tuple[float, float] | None = None,
        on_wait: Callable[[str], None] | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        if concurrency < 1:
            raise BadInput(f"concurrency is {concurrency}; it must be at least 1")
        self._endpoint = Endpoint(
            url, model, api_key=api_key, timeout=timeout, patience=patience, on_wait=on_wait, sleep=sleep
        )
        self._codec = _codec(tokenizer)
        self._concurrency = concurrency
        self._price = price
        self._probed: ServerAbilities | None = None
        self._answered = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RemotePolicy({self._endpoint.server!r}, {self._endpoint.model!r})"

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    @property
    def abilities(self) -> ServerAbilities:
        """What the server can do; the first look asks it.

        Raises:
            ServerError: it does not answer, or contradicts itself.
        """
        with self._lock:
            if self._probed is None:
                prompt = None if self._codec is None else [int(i) for i in self._codec.encode("Once upon a")]
                self._probed = probe(self._endpoint, prompt, self._concurrency)
            return self._probed

    @property
    def card(self) -> PolicyCard:
        """Name, tokenizer and capabilities; the first look probes the server."""
        able = self.abilities
        wanted = {
            "tokens": able.tokens,
            "logprobs": able.logprobs,
            "scores": able.scores,
            "paired": able.paired,
        }
        extra = {
            "server": self._endpoint.server,
            "model": self._endpoint.model,
            "mode": "tokens" if able.tokens else "chat",
            "why_not_tokens": able.why_not,
            "logprobs_of": able.logprob_kind,
            "seed": able.seed,
            # Draws of one address are equal only where their seeds were made alike.
            "seeds": f"{able.seed_bits} bits of draw, turn, token and try",
            "kind": able.kind,
            "bans": _BANS[able.bias] if able.tokens else None,
            "filters": None if able.filters else "the server's own; it takes no words that switch them off",
        }
        codec = self._codec
        return PolicyCard(
            name=f"openai:{self._endpoint.server}#{self._endpoint.model}",
            kind="remote",
            weights=None,
            tokenizer=codec.digest if codec else None,
            vocabulary=codec.vocabulary if codec else None,
            capabilities=frozenset(name for name, present in wanted.items() if present),
            context=able.context,
            extra={key: value for key, value in extra.items() if value is not None},
        )

    @property
    def codec(self) -> Codec | None:
        """The model's tokenizer, where one was given."""
        return self._codec

    # -- text ---------------------------------------------------------------------------------

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text, by the given tokenizer or the server's."""
        found = self._codec.encode(text) if self._codec else self._endpoint.tokenize(text)
        return self._need(found, "encode text")

    def decode(self, tokens: IntArray) -> str:
        """Text of token ids, by the given tokenizer or the server's."""
        found = self._codec.decode(tokens) if self._codec else self._endpoint.detokenize(tokens)
        return self._need(found, "decode tokens")

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Tokens that new messages add; no tokens but their text on a chat-only server."""
        if not self.abilities.tokens:
            return Rendered(token_array([]), "\n".join(str(m.get("content") or "") for m in new))
        if self._codec is not None:
            return self._codec.render(history, tokens, new)
        whole = self._need(
            self._endpoint.tokenize(messages=[*map(dict, history), *map(dict, new)]), "render messages"
        )
        held = len(tokens)
        if held and not np.array_equal(whole[:held], tokens):
            return Rendered(whole, self.decode(whole), rewrites=True)
        delta = token_array(whole[held:])
        return Rendered(delta, self.decode(delta))

    def _need(self, found: T | None, what: str) -> T:
        if found is None:
            raise CannotDo(
                f"cannot {what}: the server has no tokenizer service",
                where=self._endpoint.server,
                hint="give the model's tokenizer: tokenizer=DIR-or-hub-id",
            )
        return found

    # -- scores -------------------------------------------------------------------------------

    def logprobs(self, sequences: Sequence[IntArray]) -> list[FloatArray]:
        """Log-prob of every token but the first, temperature 1, as the server echoes them: [n - 1] each.

        Raises:
            CannotDo: the server echoes no log-probs of token ids.
        """
        if not self.abilities.scores:
            raise CannotDo(
                "the server gives no log-probs of given token ids",
                where=self._endpoint.server,
                hint="use vLLM's completions, or a local model",
            )
        for sequence in sequences:
            self._check_ids(sequence)
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(lambda s: self._asker.echo([int(t) for t in s]), sequences))

    def _check_ids(self, tokens: IntArray) -> None:
        if len(tokens) == 0:
            raise BadInput("the prefix is empty", hint="give at least one token")
        if (
            self._codec is not None
            and not 0 <= int(tokens.min()) <= int(tokens.max()) < self._codec.vocabulary
        ):
            raise BadInput(f"a token id is outside the vocabulary of {self._codec.vocabulary}")

    # -- sampling -----------------------------------------------------------------------------

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw one continuation per request, yielded as they finish.

        A request that fails where others are answered comes last, as a continuation with an error. So does
        one that is refused alone, or after others were answered, if the beginning of its context is answered.

        Raises:
            CannotDo: something is asked for that this server cannot do; nothing was sent.
            ServerError: all fail from the start, the server is gone, refuses the key, or contradicts itself.
        """
        self._refuse(requests, settings)
        asker = self._asker
        ask = asker.tokens if asker.able.tokens else asker.chat
        failed: list[tuple[int, CallFailed]] = []
        halt = threading.Event()
        pool = ThreadPoolExecutor(self._concurrency, initializer=self._endpoint.caller.heed, initargs=(halt,))
        waiting: dict[Future[PartialTurn], int] = {
            pool.submit(ask, index, request, settings): index for index, request in enumerate(requests)
        }
        finished = False
        try:
            for done in as_completed(waiting):
                index = waiting[done]
                refused = done.exception()
                if isinstance(refused, CallFailed):
                    # A server that is gone is no fault of a draw: the run ends here, and can go on later.
                    if refused.status is None and not self._endpoint.answers():
                        raise refused
                    failed.append((index, refused))
                    continue
                self._answered = True
                yield asker.continuation(index, done.result(), requests[index], settings)
            finished = True
        finally:
            # Left early (an error, Ctrl-C, a reader who stops): nothing more is sent, no thread stays behind.
            if not finished:
                halt.set()
            pool.shutdown(wait=True, cancel_futures=True)
        if failed and len(failed) == len(requests):
            # What was given up may do better later; all refused before any answer are no draw's fault.
            all_refused = all(failure.status not in (None, 200) for _, failure in failed)
            if (
                not all_refused
                or not (len(requests) == 1 or self._answered)
                or not self._answers_beginning(requests[0], settings)
            ):
                raise failed[0][1]
        for index, failure in failed:
            yield Continuation(index, token_array([]), "", "error", error=str(failure))

    def _answers_beginning(self, request: Request, settings: Sampling) -> bool:
        """Whether the server answers the first token of a request's prefix, or its first messages.

        Under the same settings, tools and terms: what it refuses of every request is no fault of a draw.
        """
        asker, every = self._asker, request.messages or ()
        if asker.able.tokens:
            beginning = replace(request, tokens=request.tokens[:1], generated=0, mid_turn=False)
            shorter = len(request.tokens) > 1
        else:
            asked = next((i for i, m in enumerate(every, start=1) if m.get("role") == "user"), len(every))
            end = max([asked, *(i for i, m in enumerate(every, start=1) if m.get("tools") or m.get(REQUEST))])
            beginning, shorter = replace(request, messages=every[:end]), end < len(every)
        if not shorter:
            return False
        try:
            (asker.tokens if asker.able.tokens else asker.chat)(-1, beginning, settings)
        except ServerError:
            return False
        return True

    @property
    def _asker(self) -> Asker:
        return Asker(self._endpoint, self.abilities, self._codec, self._price)

    def _refuse(self, requests: Sequence[Request], settings: Sampling) -> None:
        able, server = self.abilities, self._endpoint.server
        refuse_grammar(settings, server)
        self._refuse_sampling(settings)
        if able.tokens:
            for request in requests:
                self._check_ids(request.tokens)
            self._refuse_exact(requests, settings)
            return
        exact = [name for name in _EXACT if getattr(settings, name) != getattr(Sampling(), name)]
        if any(r.exclude_first is not None for r in requests):
            exact.append("exclude_first")
        if exact:
            raise CannotDo(
                f"{', '.join(exact)} need a server that takes token ids: {able.why_not}", where=server
            )
        if any(r.mid_turn for r in requests):
            raise CannotDo(
                f"cannot go on inside a turn: {able.why_not}", where=server, hint="fork between turns"
            )
        if any(r.messages is None for r in requests):
            raise CannotDo(f"these requests hold no messages: {able.why_not}", where=server)
        if settings.temperature != 1 and not able.free_temperature:
            raise CannotDo("this model takes no temperature but 1", where=server)

    def _refuse_exact(self, requests: Sequence[Request], settings: Sampling) -> None:
        server = self._endpoint.server
        excluded = any(r.exclude_first is not None for r in requests)
        if (settings.banned or settings.banned_first) and not self.abilities.bias:
            if settings.filtered or settings.temperature == 0:
                raise CannotDo(
                    "this server does not obey logit_bias, and a filter acts after a ban: it cannot be exact",
                    where=server,
                    hint="leave top-k, top-p and min-p away (bans are then exact), or use a local model",
                )
            if settings.stop and self._codec is None:
                raise CannotDo(
                    "stop strings under bans that the server does not obey need the model's tokenizer",
                    where=server,
                    hint="give tokenizer=DIR-or-hub-id",
                )
        if settings.entropy_top_k is not None and settings.entropy_top_k > _MOST_TOP:
            raise CannotDo(
                f"a server gives the {_MOST_TOP} likeliest tokens at most, for entropy", where=server
            )
        staged = bool(settings.forced or settings.banned_first or excluded)
        self._refuse_begun(requests, settings, staged)
        if staged and settings.stop and self._codec is None:
            raise CannotDo(
                "stop strings after forced, excluded or first-banned tokens need the model's tokenizer",
                where=server,
                hint="give tokenizer=DIR-or-hub-id",
            )

    def _refuse_sampling(self, settings: Sampling) -> None:
        """Refuse min-p and penalties where it is not known that the server has them as they are asked for."""
        able, server = self.abilities, self._endpoint.server
        asked = {name for name, neutral in _NEUTRAL.items() if getattr(settings, name) not in (None, neutral)}
        known = _PENALTIES.get(able.kind or "", frozenset[str]()) | (
            frozenset[str]() if able.tokens else _CHAT_PENALTIES
        )
        missing = sorted(asked - known)
        if settings.min_p and (able.kind is None or not able.filters):
            missing.append("min_p")
        if missing:
            whose = (
                f"{able.kind} defines {', '.join(missing)} otherwise"
                if able.kind
                else (f"it is not known how this server defines {', '.join(missing)}")
            )
            raise CannotDo(whose, where=server, hint="use vLLM, a local model, or leave the setting away")
        if able.kind == "SGLang" and settings.top_p not in (None, 1) and (settings.top_k or settings.min_p):
            raise CannotDo(
                "SGLang takes the top-p of the distribution before top-k and min-p, not after",
                where=server,
                hint="ask for top-p alone, or use vLLM or a local model",
            )

    def _refuse_begun(self, requests: Sequence[Request], settings: Sampling, staged: bool) -> None:
        """Refuse penalties that read the beginning of a turn, where the server cannot be told of it."""
        repetition, frequency, presence = settings.penalties
        able, server = self.abilities, self._endpoint.server
        if not (frequency or presence):
            return
        # Without a bias that is obeyed, a turn may have to go on anywhere.
        begun = staged or any(r.generated for r in requests) or not (able.bias or not settings.banned)
        why = None
        if begun and (able.kind == "refork" or not able.bias):
            why = "it takes no small logit_bias"
        elif begun and repetition != 1:
            why = "a repetition penalty acts after what makes up for it"
        elif begun and presence and settings.stop and self._codec is None:
            why = "stop strings need the model's tokenizer then (tokenizer=DIR-or-hub-id)"
        if why is not None:
            raise CannotDo(
                f"frequency and presence penalties inside a turn cannot be asked of this server: {why}",
                where=server,
                hint="fork between turns, or use a local model",
            )


def _codec(tokenizer: Any) -> Codec | None:
    if tokenizer is None or isinstance(tokenizer, Codec):
        return tokenizer
    if isinstance(tokenizer, str):
        from refork.policies.load import load_tokenizer

        tokenizer = load_tokenizer(tokenizer)
    return Codec(tokenizer)
