"""One draw on a server: the calls it takes, and the continuation they make together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.policies.base import Continuation, Request, Sampling, stop_end
from refork.policies.chat import Codec, tools_of
from refork.policies.remote.answers import (
    Expected,
    ServerCompletion,
    check_prompt_count,
    check_text,
    cost_of,
    finish_of,
    first_choice,
    first_tokens,
    read_completion,
    read_echo,
    read_message,
    uncut,
    up_to,
)
from refork.policies.remote.calls import CallFailed
from refork.policies.remote.endpoint import Endpoint
from refork.policies.remote.probe import NO_FILTERS, TOKEN_IDS, ServerAbilities
from refork.policies.sent import recorded_request
from refork.types import Finish, FloatArray, IntArray, Json, Message, token_array

#: The bias of banned tokens: the least that servers take. What comes nevertheless is drawn anew, so that the
#: draws are exactly those of a ban.
_NEVER = -100.0
#: So often the same place is tried.
_TRIES = 1000


@dataclass(slots=True)
class PartialTurn:
    """What one request's calls gave, before it is put together."""

    ids: list[int] = field(default_factory=list)
    parts: list[ServerCompletion] = field(default_factory=list)
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


@dataclass(frozen=True, slots=True)
class DrawCall:
    """One call of a draw: what it may not say at its first place and behind it, and how far its law holds.

    ``offset`` is that of its first token in the draw, ``again`` how often that place was tried before,
    ``room`` the most tokens. ``barred`` [place] are tokens that are drawn anew where the server says them
    nevertheless: ``first`` at the first place, ``later`` at the others. ``bias`` is what is added to logits.
    A token of ``earlier`` ends what can be used: the server counts from there on what it cannot know it has
    counted.
    """

    offset: int
    again: int
    room: int
    first: frozenset[int]
    later: frozenset[int]
    bias: dict[int, float]
    earlier: frozenset[int] = frozenset()

    def usable(self, ids: list[int]) -> tuple[int, int | None]:
        """How many of the tokens are draws of the law, and the token that was not to come behind them."""
        for place, token in enumerate(ids):
            if token in (self.later if place else self.first):
                return place, token
            if token in self.earlier:
                return place + 1, None
        return len(ids), None


def penalties_of(settings: Sampling) -> Json:
    """The penalties as servers take them, those that nobody asked for switched off in words."""
    repetition, frequency, presence = settings.penalties
    return {
        "repetition_penalty": repetition,
        "repeat_penalty": repetition,
        "frequency_penalty": frequency,
        "presence_penalty": presence,
    }


def _extra(settings: Sampling, able: ServerAbilities) -> Json:
    """What the OpenAI interface has no words for."""
    extra = TOKEN_IDS | NO_FILTERS | penalties_of(settings) | able.order
    if settings.min_p:
        extra["min_p"] = settings.min_p
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
    able: ServerAbilities
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

    def tokens(self, index: int, request: Request, settings: Sampling) -> PartialTurn:
        """A token-exact turn.

        Forced tokens are put behind the prefix; what holds for the first free token takes a call of its own.
        """
        start = time.monotonic()
        limit = limit_of(request, settings)
        prefix = [int(t) for t in request.tokens]
        turn = PartialTurn(ids=list(settings.forced[:limit]))
        if turn.ids and self.able.scores:
            # An echo begins with the second token, so the first forced one stands one place earlier in it.
            turn.forced = self.echo(prefix + turn.ids)[len(prefix) - 1 :]
        eos = self.codec.eos_ids if self.codec and not settings.ignore_eos else ()
        if turn.ids and turn.ids[-1] in (*settings.stop_ids, *eos):
            turn.finish = "stop"
        what, again, last = f"request {index}, draw {request.noise.draw}", 0, -1
        while turn.finish == "length" and len(turn.ids) < limit and turn.error is None:
            again = again + 1 if last == len(turn.ids) else 0
            last = len(turn.ids)
            call = self._call(turn, again, limit, request, settings)
            if not self._complete(turn, call, request, settings, what):
                break
        turn.seconds = time.monotonic() - start
        return turn

    def _call(
        self, turn: PartialTurn, again: int, limit: int, request: Request, settings: Sampling
    ) -> DrawCall:
        """The next call of a turn."""
        offset = len(turn.ids)
        banned = frozenset(settings.banned)
        first, bias, room = banned, dict.fromkeys(banned, _NEVER), limit - offset
        if offset == len(settings.forced):
            first = banned | frozenset(settings.banned_first)
            bias = dict.fromkeys(first, _NEVER)
            if request.exclude_first is not None:
                first |= {request.exclude_first}
                # What filters leave is conditioned on another token. A bias would act before the filters, and
                # let others in; so there the excluded token may come, and is drawn anew.
                if not settings.filtered and settings.temperature != 0:
                    bias[request.exclude_first] = _NEVER
            # A bias holds for a whole call, and this one is for its first place only.
            room = room if set(bias) == banned else 1
        _, frequency, presence = settings.penalties
        begun = [int(t) for t in request.tokens[len(request.tokens) - request.generated :]] + turn.ids
        if not (frequency or presence) or not begun:
            return DrawCall(offset, again, room, first, banned, bias)
        # The server takes all that it is sent for the prompt, which these two penalties do not read. A bias
        # is subtracted as they are. What it says itself it counts; but a token that it says and that came
        # before would be there twice for the presence penalty, so its use ends with that token.
        for token in set(begun) - set(bias):
            bias[token] = -(frequency * begun.count(token) + presence)
            if abs(bias[token]) > -_NEVER:
                raise CallFailed(
                    f"token {token} came {begun.count(token)} times: more than a bias can make up for",
                    status=200,
                    where=f"{self.endpoint.server}, draw {request.noise.draw}",
                    hint="a smaller frequency penalty, or a local model",
                )
        earlier = frozenset(begun) if presence else frozenset[int]()
        return DrawCall(offset, again, room, first, banned, bias, earlier)

    def _body(self, turn: PartialTurn, call: DrawCall, request: Request, settings: Sampling) -> Json:
        body: Json = {
            "prompt": [int(t) for t in request.tokens] + turn.ids,
            "max_tokens": call.room,
            "temperature": settings.temperature,
            # In words, for a server may have a default of its own.
            "top_p": 1.0 if settings.top_p is None else settings.top_p,
            "seed": request.noise.call_seed(call.offset, call.again, bits=self.able.seed_bits),
        }
        if call.bias:
            body["logit_bias"] = {str(i): call.bias[i] for i in sorted(call.bias)}
        if settings.stop:
            body["stop"] = list(settings.stop)
        if self.able.logprobs:
            body["logprobs"] = settings.entropy_top_k or 1
        return body

    def _complete(
        self, turn: PartialTurn, call: DrawCall, request: Request, settings: Sampling, what: str
    ) -> bool:
        """Ask, and add what can be used of the answer; whether the turn goes on with another call.

        Raises:
            BadInput: the likeliest token is excluded at temperature 0.
            ServerError: a banned token came where another draw would not be one of the distribution.
            CallFailed: it came again and again.
        """
        body = self._body(turn, call, request, settings)
        expected = Expected(self.endpoint.server, what, body["prompt"], call.room)
        answer = self.endpoint.completion(body, what, _extra(settings, self.able))
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
        ids = said.ids or []
        count, barred = call.usable(ids)
        if barred is not None:
            self._refuse_barred(barred, call, request, settings, expected)
        cut = count < len(ids)
        if cut:
            short = first_tokens(said, count, decode)
            if short is None or (settings.stop and self.codec is None):
                raise expected.lie(
                    f"it said token {ids[count]}", "that logit_bias -100 is obeyed, as at the probe"
                )
            said = short
        turn.ids += said.ids or []
        turn.parts.append(said)
        turn.finish, turn.error = said.finish, said.error
        # A call for one token ends by its length, the turn does not; after an empty answer it would never.
        return cut or (bool(ids) and call.room == 1)

    def _refuse_barred(
        self, token: int, call: DrawCall, request: Request, settings: Sampling, expected: Expected
    ) -> None:
        """Refuse where a token that was not to come cannot be drawn anew."""
        if token == request.exclude_first and settings.temperature == 0:
            raise BadInput(
                "no token is left: the distribution's only one was excluded",
                where=f"{expected.server}, {expected.request}",
                hint="a temperature above 0",
            )
        if token != request.exclude_first and (settings.filtered or settings.temperature == 0):
            raise expected.lie(
                f"it said the banned token {token}, under filters that act after the ban",
                "that logit_bias -100 is obeyed",
            )
        if call.again >= _TRIES:
            raise CallFailed(
                f"the token that is not to come, {token}, came {_TRIES} times in a row",
                status=200,
                where=f"{expected.server}, {expected.request}",
                hint="its probability is near 1 there, and the server does not keep it out",
            )

    def _uncut(self, cut: ServerCompletion, body: Json, settings: Sampling, what: str) -> Json:
        """The same completion up to its stop string, which was cut off: the same seed says the same tokens.

        Raises:
            CallFailed: the server said others this time.
        """
        del body["stop"]
        answer = self.endpoint.completion(body, what, _extra(settings.but(stop=()), self.able))
        choice = first_choice(answer, self.endpoint.server, what)
        whole = read_completion(
            choice, Expected(self.endpoint.server, what, body["prompt"], body["max_tokens"])
        )
        # Nothing of a second answer is used unless it says what the first one said.
        known = cut.ids or []
        if (whole.ids or [])[: len(known)] != known or not any(stop in whole.text for stop in settings.stop):
            raise CallFailed(
                "the server cut a stop string off, and the same seed did not say it again",
                status=200,
                where=f"{self.endpoint.server}, {what}",
                hint="ask for fewer draws at a time (concurrency=1), or for no stop strings",
            )
        return answer

    def chat(self, index: int, request: Request, settings: Sampling) -> PartialTurn:
        """A chat reply."""
        start = time.monotonic()
        messages = request.messages or ()
        body: Json = {
            "messages": list(messages),
            "seed": request.noise.call_seed(0, bits=self.able.seed_bits),
        }
        recorded = recorded_request(messages)
        if recorded is None:
            body |= self._own_terms(request, settings)
            beside = self._beside(settings)
        else:
            beside = self._recorded_terms(recorded, request, settings)
        if tools := tools_of(messages):
            body["tools"] = tools
        what = f"request {index}, draw {request.noise.draw}"
        answer = self.endpoint.chat(body, what, beside)
        choice = first_choice(answer, self.endpoint.server, what)
        finish, error = finish_of(choice.get("finish_reason"))
        return PartialTurn(
            bodies=[answer],
            finish=finish,
            message=read_message(choice, self.endpoint.server),
            error=error,
            seconds=time.monotonic() - start,
        )

    def _own_terms(self, request: Request, settings: Sampling) -> Json:
        """How a reply is to be drawn, all of it said, so that no default of the server has a part in it."""
        terms: Json = {self.able.limit_name: limit_of(request, settings)}
        if self.able.free_temperature:
            terms["temperature"] = settings.temperature
        if settings.top_p is not None:
            terms["top_p"] = settings.top_p
        elif self.able.filters:
            terms["top_p"] = 1.0
        if settings.stop:
            terms["stop"] = list(settings.stop)
        return terms

    def _beside(self, settings: Sampling) -> Json | None:
        """What the chat interface has no words for, and penalties."""
        if self.able.filters:
            beside = NO_FILTERS | penalties_of(settings) | self.able.order
            return beside | ({"min_p": settings.min_p} if settings.min_p else {})
        asked = {name: getattr(settings, name) for name in ("presence_penalty", "frequency_penalty")}
        return {name: value for name, value in asked.items() if value is not None} or None

    def _recorded_terms(self, recorded: Json, request: Request, settings: Sampling) -> Json:
        """How the log's own agent asked, with the settings of this draw in the place of what it said of them.

        What it left to the server is left to the server, unless a setting differs from the default.
        """
        terms, plain = dict(recorded), Sampling()
        names = ("max_tokens", "max_completion_tokens")
        limit = next((name for name in names if name in recorded), None)
        if limit is not None or request.max_tokens is not None or settings.max_tokens != plain.max_tokens:
            terms[limit or self.able.limit_name] = limit_of(request, settings)
        for name in ("temperature", "top_p"):
            value = getattr(settings, name)
            if name in recorded or value != getattr(plain, name):
                terms[name] = value
        for name in ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            if (value := getattr(settings, name)) is not None:
                terms[name] = value
        if settings.stop or "stop" in recorded:
            given = recorded.get("stop")
            same = (given,) == settings.stop or list(settings.stop) == given
            terms["stop"] = given if same else list(settings.stop)
        return {name: value for name, value in terms.items() if value is not None or name in recorded}

    def continuation(
        self, index: int, turn: PartialTurn, request: Request, settings: Sampling
    ) -> Continuation:
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
        text, offsets, count, stopped = self._text(turn, request, settings)
        values, entropy = self._values(turn, settings)
        # Whether what is sampled from is the model's own distribution at temperature 1.
        plain = settings.is_plain and request.exclude_first is None
        sampled, at_one = (
            plain or self._reports_asked_logprobs(request, settings),
            plain or self.able.logprob_kind == "t1",
        )
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

    def _reports_asked_logprobs(self, request: Request, settings: Sampling) -> bool:
        """Whether the server's log-probs are under the distribution that these settings ask for."""
        if self.able.logprob_kind != "sampled" or settings.forced:
            return False  # Forced tokens' log-probs are echoed, at temperature 1.
        barred = settings.banned or settings.banned_first or request.exclude_first is not None
        return not barred or (
            self.able.bias and not (request.exclude_first is not None and settings.filtered)
        )

    def _text(
        self, turn: PartialTurn, request: Request, settings: Sampling
    ) -> tuple[str, IntArray | None, int, bool]:
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
        if not settings.stop or not turn.ids:
            return text, ends, len(turn.ids), False
        # The server saw only what it said itself: a stop string may begin before that, and may not end in
        # what was forced.
        begun = [int(token) for token in request.tokens[len(request.tokens) - request.generated :]]
        whole, places = self.codec.pieces([*begun, *turn.ids])
        first = len(begun) + max(len(forced) - 1, 0)
        end = stop_end(whole, settings.stop, int(places[first - 1]) if first else 0)
        if end is None:
            return text, ends, len(turn.ids), False
        # Up to the token in which the stop string ends.
        count = int(np.searchsorted(places, end)) + 1 - len(begun)
        text, ends = self.codec.pieces(turn.ids[:count])
        return text, ends, count, True

    def _values(self, turn: PartialTurn, settings: Sampling) -> tuple[FloatArray | None, FloatArray | None]:
        """Log-probs of all tokens, and entropies where they were asked for and given."""
        if not self.able.logprobs or (turn.ids[: len(settings.forced)] and turn.forced is None):
            return None, None
        parts = [np.array(part.values, dtype=np.float32) for part in turn.parts]
        if turn.forced is not None:
            parts.insert(0, turn.forced)
        # In float32 the log-prob of a certain token may come out a little above 0.
        values = np.minimum(np.concatenate(parts), 0) if parts else np.zeros(0, dtype=np.float32)
        size = settings.entropy_top_k
        tops = [top for part in turn.parts for top in part.top or []]
        if size is None or len(tops) != len(values):
            return values, None
        best = [np.array(top[:size]) for top in tops]
        return values, np.array([-(np.exp(t) * t).sum() for t in best], dtype=np.float32)
