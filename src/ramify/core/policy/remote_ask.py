"""One draw on a server: the calls it takes, and the continuation they make together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from ramify.core.policy.base import Continuation, Request, Sampling
from ramify.core.policy.chat import Codec, tools_of
from ramify.core.policy.remote_call import CallFailed
from ramify.core.policy.remote_endpoint import Endpoint
from ramify.core.policy.remote_probe import NO_FILTERS, TOKEN_IDS, Abilities
from ramify.core.policy.remote_wire import (
    Expected,
    Said,
    check_prompt_count,
    check_text,
    cost_of,
    finish_of,
    first_choice,
    read_completion,
    read_echo,
    read_message,
    uncut,
    up_to,
)
from ramify.core.types import Finish, FloatArray, IntArray, Json, Message, token_array

#: Keys of messages that servers do not take: the tools go beside the messages, ids are for our records.
_OURS = ("tools", "id")


@dataclass(slots=True)
class Turn:
    """What one request's calls gave, before it is put together."""

    ids: list[int] = field(default_factory=list)
    parts: list[Said] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    forced: FloatArray | None = None
    finish: Finish = "length"
    message: Message | None = None
    error: str | None = None
    seconds: float = 0.0


def limit_of(request: Request, settings: Sampling) -> int:
    """The most tokens this request may say."""
    own = request.max_tokens
    return settings.max_tokens if own is None else min(own, settings.max_tokens)


def is_plain(request: Request, settings: Sampling) -> bool:
    """Whether the law that is sampled from is the model's own at temperature 1."""
    return (
        settings.temperature == 1
        and settings.top_k is None
        and settings.top_p in (None, 1)
        and not settings.banned
        and not settings.banned_first
        and request.exclude_first is None
    )


def _body(prompt: list[int], limit: int, banned: set[int], request: Request, settings: Sampling) -> Json:
    body: Json = {
        "prompt": prompt,
        "max_tokens": limit,
        "temperature": settings.temperature,
        "top_p": 1.0 if settings.top_p is None else settings.top_p,
        "seed": request.noise.integer(31),
    }
    if banned:
        body["logit_bias"] = {str(i): -100 for i in sorted(banned)}
    if settings.stop:
        body["stop"] = list(settings.stop)
    return body


def _extra(settings: Sampling) -> Json:
    """What the OpenAI interface has no words for."""
    extra = TOKEN_IDS | NO_FILTERS
    if settings.stop:
        # vLLM's and SGLang's words for keeping the stop string.
        extra |= {"include_stop_str_in_output": True, "no_stop_trim": True}
    if settings.top_k is not None:
        extra["top_k"] = settings.top_k
    if settings.stop_ids:
        extra["stop_token_ids"] = list(settings.stop_ids)
    if settings.ignore_eos:
        extra["ignore_eos"] = True
    return extra


@final
@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one server, as far as its abilities go."""

    endpoint: Endpoint
    able: Abilities
    codec: Codec | None
    price: tuple[float, float] | None

    def echo(self, ids: list[int]) -> FloatArray:
        """Log-probs of given tokens but the first."""
        if len(ids) < 2:
            return np.zeros(0, dtype=np.float32)
        expected = Expected(self.endpoint.server, f"log-probs of {len(ids)} tokens", ids, 1)
        body = {"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 1.0}
        answer = self.endpoint.completion(body, expected.request, TOKEN_IDS)
        return read_echo(first_choice(answer, expected.server, expected.request), expected)

    def tokens(self, index: int, request: Request, settings: Sampling) -> Turn:
        """A token-exact turn.

        Forced tokens are put behind the prefix; what holds for the first free token takes a call of its own.
        """
        start = time.monotonic()
        limit = limit_of(request, settings)
        prefix = [int(t) for t in request.tokens]
        turn = Turn(ids=list(settings.forced[:limit]))
        if turn.ids and self.able.scores:
            turn.forced = self.echo(prefix + turn.ids)[len(prefix) - 1 :]
        eos = self.codec.eos_ids if self.codec and not settings.ignore_eos else ()
        if turn.ids and turn.ids[-1] in (*settings.stop_ids, *eos):
            turn.finish = "stop"
        first = set(settings.banned_first)
        if request.exclude_first is not None:
            first.add(request.exclude_first)
        while turn.finish == "length" and len(turn.ids) < limit and turn.error is None:
            alone = bool(first) and not turn.parts
            banned = set(settings.banned) | (first if alone else set())
            room = 1 if alone else limit - len(turn.ids)
            body = _body(prefix + turn.ids, room, banned, request, settings)
            self._complete(turn, body, settings, f"request {index}, draw {request.noise.draw}")
            if not alone:
                break
        turn.seconds = time.monotonic() - start
        return turn

    def _complete(self, turn: Turn, body: Json, settings: Sampling, what: str) -> None:
        banned = frozenset(int(i) for i in body.get("logit_bias", ()))
        expected = Expected(self.endpoint.server, what, body["prompt"], body["max_tokens"], banned)
        if self.able.logprobs:
            body["logprobs"] = settings.entropy_top_k or 1
        answer = self.endpoint.completion(body, what, _extra(settings))
        turn.bodies.append(answer)
        said = read_completion(first_choice(answer, expected.server, what), expected)
        if settings.stop and (count := uncut(said, answer, expected)) is not None:
            answer = self._uncut(said, body | {"max_tokens": count}, settings, what)
            turn.bodies.append(answer)
            said = read_completion(first_choice(answer, expected.server, what), expected)
            said = replace(said, finish="stop")
        if said.ids is None:
            raise expected.lie("it gave no token ids this time", "them, as at the probe")
        if self.able.logprobs and said.values is None:
            raise expected.lie("it gave no log-probs this time", "them, as at the probe")
        check_prompt_count(answer, expected)
        if self.codec is not None:
            check_text(said, self.codec, expected)
        decode = self.endpoint.detokenize if self.codec is None else self.codec.decode
        said = up_to(said, settings.stop_ids, decode, expected)
        turn.ids += said.ids or []
        turn.parts.append(said)
        turn.finish, turn.error = said.finish, said.error

    def _uncut(self, cut: Said, body: Json, settings: Sampling, what: str) -> Json:
        """The same completion up to its stop string, which was cut off: the same seed says the same tokens.

        Raises:
            CallFailed: the server said others this time.
        """
        del body["stop"]
        answer = self.endpoint.completion(body, what, _extra(settings.but(stop=())))
        choice = first_choice(answer, self.endpoint.server, what)
        whole = read_completion(
            choice, Expected(self.endpoint.server, what, body["prompt"], body["max_tokens"])
        )
        known = cut.ids or []
        if (whole.ids or [])[: len(known)] != known or not any(stop in whole.text for stop in settings.stop):
            raise CallFailed(
                "the server cut a stop string off, and the same seed did not say it again",
                status=200,
                where=f"{self.endpoint.server}, {what}",
                hint="ask for fewer draws at a time (concurrency=1), or for no stop strings",
            )
        return answer

    def chat(self, index: int, request: Request, settings: Sampling) -> Turn:
        """A chat reply."""
        start = time.monotonic()
        messages = request.messages or ()
        body: Json = {
            "messages": [{k: v for k, v in m.items() if k not in _OURS} for m in messages],
            "seed": request.noise.integer(31),
            self.able.limit_name: limit_of(request, settings),
        }
        if self.able.free_temperature:
            body["temperature"] = settings.temperature
        if settings.top_p is not None:
            body["top_p"] = settings.top_p
        elif self.able.filters:
            body["top_p"] = 1.0
        if settings.stop:
            body["stop"] = list(settings.stop)
        if tools := tools_of(messages):
            body["tools"] = tools
        what = f"request {index}, draw {request.noise.draw}"
        answer = self.endpoint.chat(body, what, NO_FILTERS if self.able.filters else None)
        choice = first_choice(answer, self.endpoint.server, what)
        finish, error = finish_of(choice.get("finish_reason"))
        return Turn(
            bodies=[answer],
            finish=finish,
            message=read_message(choice, self.endpoint.server),
            error=error,
            seconds=time.monotonic() - start,
        )

    def continuation(self, index: int, turn: Turn, request: Request, settings: Sampling) -> Continuation:
        """A turn put together. A chat reply has text and message, no tokens."""
        cost = cost_of(turn.bodies, turn.seconds, self.price)
        if turn.message is not None:
            return Continuation(
                index,
                token_array([]),
                str(turn.message["content"]),
                turn.finish,
                cost=cost,
                message=turn.message,
                error=turn.error,
            )
        text, offsets, count, stopped = self._text(turn, settings)
        values, entropy = self._values(turn, settings)
        plain = is_plain(request, settings)
        sampled, at_one = plain or self.able.law == "sampled", plain or self.able.law == "t1"
        return Continuation(
            index=index,
            tokens=token_array(turn.ids[:count]),
            text=text,
            finish="stop" if stopped else turn.finish,
            offsets=offsets,
            logprobs=values[:count] if values is not None and sampled else None,
            logprobs_t1=values[:count] if values is not None and at_one else None,
            entropy=entropy[:count] if entropy is not None and at_one else None,
            cost=cost,
            error=turn.error,
        )

    def _text(self, turn: Turn, settings: Sampling) -> tuple[str, IntArray | None, int, bool]:
        """Text, offsets, the number of tokens up to the end of a stop string, and whether one was met."""
        forced = turn.ids[: len(settings.forced)]
        if self.codec is None:
            text = "".join(part.text for part in turn.parts)
            last = turn.parts[-1].stopped_by if turn.parts else None
            if last is not None and not text.endswith(last):
                text += last
            if forced:
                text = (self.endpoint.detokenize(token_array(forced)) or "") + text
            return text, None, len(turn.ids), False
        text, ends = self.codec.pieces(turn.ids)
        found = [at + len(stop) for stop in settings.stop if (at := text.find(stop)) >= 0]
        if not found:
            return text, ends, len(turn.ids), False
        count = int(np.searchsorted(ends, min(found))) + 1
        text, ends = self.codec.pieces(turn.ids[:count])
        return text, ends, count, True

    def _values(self, turn: Turn, settings: Sampling) -> tuple[FloatArray | None, FloatArray | None]:
        """Log-probs of all tokens, and entropies where they were asked for and given."""
        if not self.able.logprobs or (turn.ids[: len(settings.forced)] and turn.forced is None):
            return None, None
        parts = [np.array(part.values, dtype=np.float32) for part in turn.parts]
        if turn.forced is not None:
            parts.insert(0, turn.forced)
        values = np.minimum(np.concatenate(parts), 0) if parts else np.zeros(0, dtype=np.float32)
        size = settings.entropy_top_k
        tops = [top for part in turn.parts for top in part.top or []]
        if size is None or len(tops) != len(values):
            return values, None
        best = [np.array(top[:size]) for top in tops]
        return values, np.array([-(np.exp(t) * t).sum() for t in best], dtype=np.float32)
