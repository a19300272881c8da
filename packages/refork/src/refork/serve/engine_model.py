"""A local model behind a name: continuous batching over the branching decoder, token by token."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, final

import numpy as np

from refork.errors import BadInput, UserError
from refork.policies.base import PolicyCard, Sampling
from refork.policies.call_form import CallForm, call_form
from refork.policies.local import LocalPolicy
from refork.policies.one_at_a_time import one_at_a_time
from refork.sampling.noise import NoiseKey, stream_of
from refork.serve.engine import Engine
from refork.serve.exchange import Choice
from refork.serve.refusal import BadParameter, Refused, require_text
from refork.serve.served import Asked, Delta, Top
from refork.serve.text import Speech, reader_of
from refork.types import Finish, IntArray, Message, token_array

if TYPE_CHECKING:
    from refork.decoding.live import LiveDecoder, StepOutput
    from refork.decoding.speculator import Speculator

#: Noise of questions with a seed, and of those without one.
SEEDED, FRESH = stream_of("serve", "seeded"), stream_of("serve", "fresh")
#: Prompts longer than this many characters are made into tokens beside the event loop.
_LONG = 20_000
#: A tokenizer may make text shorter before it cuts it up, by no more than this.
_SHRINKS = 4
#: Places of a prompt whose likeliest tokens are found at a time: each takes a row of the vocabulary's size.
_PLACES = 32


@final
class EngineModel:
    """A local policy; ``width`` answers are drawn at the same time, by a ``speculator`` where one is given.

    The noise of answer i under seed s is that of key (s, i), whatever the prompt and whatever is drawn beside
    it: the same prompt gives the same tokens, and two prompts under one seed are paired. ``live`` brings a
    decoder of its own.
    """

    def __init__(
        self,
        policy: LocalPolicy,
        *,
        width: int = 64,
        speculator: Speculator | None = None,
        live: LiveDecoder | None = None,
    ) -> None:
        if live is None:
            from refork.decoding.live import LiveDecoder

            live = LiveDecoder(policy.decoder, width=width, speculator=speculator)
        self.policy = policy
        self.slots = width
        self.engine = Engine(live, one_at_a_time(policy), policy.card.name)
        # A number of its own: what two servers record in one tree would else be the same draws.
        self._own_seed = secrets.randbits(48)
        self._draws = itertools.count()
        self._names: dict[int, str] = {}
        self._encoding = threading.Lock()
        self._widest: int | None = None
        self._call_form: CallForm | None = None

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.card.name

    @property
    def card(self) -> PolicyCard:
        """The policy's card."""
        return self.policy.card

    @property
    def context(self) -> int | None:
        """Positions of the model."""
        return self.policy.card.context

    @property
    def broken(self) -> str | None:
        """What the engine died of."""
        return self.engine.failed

    def gauges(self) -> Mapping[str, float]:
        """Choices with a row and without one, and bytes of keys and values."""
        engine = self.engine
        return {"running": engine.running, "waiting": engine.waiting, "kv_bytes": engine.bytes}

    async def complete(self, asked: Asked) -> EngineAnswer:
        """Begin the answers to one prompt.

        Raises:
            BadInput: the template refuses the messages, the prompt is empty or fills the context, a setting
                or token id is not allowed.
            Refused: 500, the engine has failed.
        """
        prompt = await self._prompt(asked)
        keys = [self._key(asked.seed, i) for i in range(asked.n)]
        settings = asked.settings or Sampling()
        ask = partial(self.policy.ask, prompt, settings=settings, top=asked.top, generated=0)
        if settings.grammar is not None:
            # The first turn of a grammar compiles it, and the first of all reads the vocabulary.
            await asyncio.to_thread(ask, keys[0])
        asks = [ask(key) for key in keys]
        answer = EngineAnswer(self, prompt, keys, asked)
        self.engine.submit(asks, answer)
        return answer

    async def stop(self) -> None:
        """End every answer and the engine's thread."""
        await self.engine.stop()

    def _key(self, seed: int | None, number: int) -> NoiseKey:
        if seed is None:
            # The draw of a noise key has 32 bits; a larger number would not fit its counter.
            return NoiseKey(self._own_seed, FRESH, next(self._draws) % 2**32)
        return NoiseKey(seed, SEEDED, number)

    # -- tokens and text ---------------------------------------------------------------------------

    async def _prompt(self, asked: Asked) -> IntArray:
        if asked.tokens is not None:
            # A model may have more rows than its tokenizer has tokens: those have no text to record.
            limit = self.policy.codec.vocabulary
            if (asked.tokens >= limit).any():
                said = f"prompt: token id {asked.tokens.max()} is outside the vocabulary of {limit}"
                raise BadParameter("prompt", said)
            return asked.tokens
        if asked.messages is None:
            return await self.encode(asked.text or "")
        # Templates may drop what an assistant thought, so only the words of others surely count.
        told = (message for message in asked.messages if message.get("role") != "assistant")
        self._require_room(sum(_length(message) for message in told), "messages")
        size = sum(len(str(message)) for message in asked.messages)
        return await self._beside(size, partial(self._rendered, asked))

    def _require_room(self, size: int, param: str) -> None:
        """Refuse so many characters before the tokenizer spends seconds on them, where they cannot fit."""
        table = self.policy.codec.token_bytes
        if self.context is None or table is None:
            return
        if self._widest is None:
            self._widest = max(map(len, table))
        if size > _SHRINKS * self.context * self._widest:
            said = f"{param}: {size:,} characters leave no room in a context of {self.context:,} tokens"
            raise BadParameter(param, said)

    async def _beside(self, size: int, do: Callable[[], IntArray]) -> IntArray:
        """Run the tokenizer; in a thread where that takes long, or where another one uses it."""
        # Where the lock is held, waiting for it here would stop the event loop.
        if size > _LONG or self._encoding.locked():
            return await asyncio.to_thread(do)
        return do()

    def _rendered(self, asked: Asked) -> IntArray:
        messages = [_as_text(message) for message in asked.messages or ()]
        begun = str(messages.pop()["content"]) if asked.goes_on else ""
        try:
            require_text(json.dumps([messages, asked.tools], ensure_ascii=False, default=str), "messages")
            if asked.tools:
                messages[0] = {**messages[0], "tools": list(asked.tools)}
            with self._encoding:
                prompt = self.policy.render([], token_array([]), messages).tokens
                return token_array([*prompt, *self.policy.encode(begun)]) if begun else prompt
        except RecursionError as error:
            raise BadParameter("messages", "messages: something in them is nested too deeply") from error

    async def read(self, asked: Asked, *, begun: bool = True) -> IntArray:
        """Token ids of what is asked; a text without ``begun`` has only those of its own characters."""
        prompt = await self._prompt(asked)
        return prompt if begun or asked.text is None else prompt[len(self.policy.codec.opening) :]

    async def encode(self, text: str) -> IntArray:
        """Token ids of a prompt's text, begun as the tokenizer begins one."""
        self._require_room(len(text), "prompt")

        def work() -> IntArray:
            require_text(text, "prompt")
            with self._encoding:
                ids, opening = self.policy.encode(text), self.policy.codec.opening
            return token_array([*opening, *ids]) if opening else ids

        return await self._beside(len(text), work)

    def call_form(self) -> CallForm:
        """How the chat template writes calls of tools; worked out once.

        Raises: CannotDo where no grammar covers that.
        """
        if self._call_form is None:
            with self._encoding:
                self._call_form = call_form(self.policy.codec)
        return self._call_form

    def spell(self, token: int) -> str:
        """One token as text, special tokens spelled out; remembered."""
        found = self._names.get(token)
        if found is None:
            codec = self.policy.codec
            found = self._names[token] = codec.raw([token]) if token < codec.vocabulary else ""
        return found

    def pieces(self, tokens: Sequence[int]) -> tuple[str, IntArray]:
        """Text of tokens without special tokens, and where each ends in it (characters)."""
        return self.policy.codec.pieces(tokens)

    async def score(self, tokens: IntArray, top: int) -> tuple[list[float], list[Top]]:
        """Log-probs of a text's tokens but the first, and the ``top`` likeliest in each place.

        It is computed between steps of the decoder, some places at a time: what runs waits for no more.

        Raises: BadInput as :meth:`complete`.
        """
        self.policy.check([tokens])
        values = await self.engine.call(partial(self.policy.logprobs, [tokens]))
        tops: list[Top] = []
        for start in range(1, len(tokens) if top else 1, _PLACES):
            prefixes = [tokens[:end] for end in range(start, min(start + _PLACES, len(tokens)))]
            tops += await self.engine.call(partial(self._tops, prefixes, top))
        return values[0].tolist(), tops

    def _tops(self, prefixes: list[IntArray], top: int) -> list[Top]:
        return [likeliest(distribution, top) for distribution in self.policy.next_logprobs(prefixes)]


def likeliest(distribution: np.ndarray[tuple[int, ...], np.dtype[np.float32]], top: int) -> Top:
    """The ``top`` likeliest tokens of a distribution and their log-probs, best first, equal ones by id."""
    # A full stable sort: a partial one would order tokens of equal log-prob as it happens to meet them.
    best = np.argsort(-distribution, kind="stable")[:top]
    return best.astype(np.int32), distribution[best]


def _length(message: Message) -> int:
    """Characters of a message's content, at least."""
    content = message.get("content")
    return len(content) if isinstance(content, str) else 0


def _as_text(message: Message) -> Message:
    """The message with text for its content. Raises BadInput for parts of another kind."""
    message = {key: value for key, value in message.items() if key != "tools"}  # that key is ours
    if message.get("role") == "developer":  # OpenAI's newer word, which few templates know
        message = {**message, "role": "system"}
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kinds = {str(part.get("type")) if isinstance(part, dict) else "?" for part in content}
    if odd := sorted(kinds - {"text", "input_text", "output_text"}):
        raise BadInput(f"a content part is {odd[0]!r}; this model reads text only", where="messages")
    return {**message, "content": "".join(str(part.get("text", "")) for part in content)}


@final
class EngineAnswer:
    """The answers to one prompt while they are drawn; heard and read in the event loop's thread."""

    def __init__(self, model: EngineModel, prompt: IntArray, keys: Sequence[NoiseKey], asked: Asked) -> None:
        self.prompt = prompt
        self._model = model
        self._voices = [_Voice(model, number, key, asked) for number, key in enumerate(keys)]
        self._open = len(self._voices)
        self._error: UserError | None = None
        self._news = asyncio.Event()

    @property
    def tokens_in(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)

    @property
    def tokens_out(self) -> int:
        """Tokens of all choices."""
        return sum(voice.count for voice in self._voices)

    async def parts(self) -> AsyncIterator[list[Delta]]:
        """What is new, of whichever choices, until all have ended.

        Raises: Refused where the model, the engine or the server failed.
        """
        while True:
            await self._news.wait()
            self._news.clear()
            # Read before the yield: what ends while the reader is away brings a part of its own.
            ended = self._open == 0
            fresh = [voice.take() for voice in self._voices if voice.fresh]
            if fresh:
                yield fresh
            if self._error is not None:
                raise self._error
            for delta in fresh:
                if delta.finish == "error":
                    said = f"an answer broke off: {delta.error}"
                    raise Refused(500, said, "server_error", "generation_failed")
            if ended:
                return

    def choices(self) -> tuple[Choice, ...]:
        """What every choice has said by now."""
        return tuple(voice.choice() for voice in self._voices)

    def close(self) -> None:
        """Cancel what still runs and free its memory."""
        if self._open and self._error is None:
            self._open = 0
            self._model.engine.drop(self)

    def hear(self, choice: int, output: StepOutput) -> None:
        """One choice said something."""
        self._voices[choice].hear(output)
        if output.finish is not None:
            self._open -= 1

    def fail(self, error: UserError) -> None:
        """No choice will say anything more."""
        self._error = error
        self._news.set()

    def wake(self) -> None:
        """Everything of a step has been heard."""
        self._news.set()


@final
class _Voice:
    """One choice: all it has said, and how much of it was fetched. Plain lists, a few bytes a token."""

    def __init__(self, model: EngineModel, number: int, key: NoiseKey, asked: Asked) -> None:
        codec = model.policy.codec
        settings = asked.settings or Sampling()
        self._model, self._number, self._key, self._settings = model, number, key, settings
        self._speech = Speech(reader_of(codec), settings.stop, keep_stop=asked.keep_stop)
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._logprobs_t1: list[float] = []
        self._entropy: list[float] = []
        self._top: list[Top] = []
        self._taken = 0
        self._ties = self._drafted = self._accepted = self._rounds = 0
        self._finish: Finish | None = None
        self._error: str | None = None
        self.fresh = False

    @property
    def count(self) -> int:
        return len(self._tokens)

    def hear(self, said: StepOutput) -> None:
        self._tokens += said.tokens.tolist()
        self._logprobs += said.logprobs.tolist()
        self._logprobs_t1 += said.logprobs_t1.tolist()
        if said.entropy is not None:
            self._entropy += said.entropy.tolist()
        if said.top is not None:
            self._top += said.top
        self._ties += said.ties
        if said.drafted:
            self._rounds += 1
            self._drafted += said.drafted
            self._accepted += said.accepted
        self._finish, self._error = said.finish, said.error
        self.fresh = True

    def take(self) -> Delta:
        start, self._taken, self.fresh = self._taken, len(self._tokens), False
        tokens = self._tokens[start:]
        text = self._speech.put(tokens, last=self._finish is not None)
        return Delta(
            choice=self._number,
            text=text,
            tokens=tokens,
            logprobs=self._logprobs_t1[start:],
            top=self._top[start:],
            ends=self._speech.ends[start:],
            finish=self._finish,
            stop=self._speech.stopped,
            error=self._error,
        )

    def choice(self) -> Choice:
        text, offsets = self._model.pieces(self._tokens)
        return Choice(
            text=text,
            finish=self._finish or "error",
            tokens=token_array(self._tokens),
            offsets=offsets,
            logprobs=np.array(self._logprobs, dtype=np.float32),
            logprobs_t1=np.array(self._logprobs_t1, dtype=np.float32),
            entropy=np.array(self._entropy, dtype=np.float32) if self._entropy else None,
            noise=self._key,
            ties=self._ties,
            drafted=self._drafted,
            accepted=self._accepted,
            rounds=self._rounds,
            error=self._error,
        )
