"""What servers answer, read strictly: token ids, log-probs and text must fit each other.

Three dialects give token ids: a ``token_ids`` list beside the text (vLLM, SGLang), an ``id`` in every
log-prob entry (llama.cpp), and tokens written ``token_id:N`` (older vLLM).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from refork.errors import ServerError
from refork.policies.base import Cost, known_sum
from refork.policies.chat import Codec
from refork.types import Finish, FloatArray, IntArray, Json, Message, token_array

P = ParamSpec("P")
T = TypeVar("T")

_NAMED = "token_id:"
#: A float32 log-prob of a certain token may come out a little above 0.
_ABOVE_ZERO = 1e-4
_MOST_IDS = 1 << 31


@dataclass(frozen=True, slots=True)
class ServerCompletion:
    """One completion as the server gave it: ids and log-probs are None where it gave none.

    ``top``: per token, the likeliest tokens' log-probs (best first).
    """

    ids: list[int] | None
    values: list[float] | None
    text: str
    finish: Finish
    stopped_by: str | None = None
    top: list[list[float]] | None = None
    top_first: dict[str, float] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a truthful answer to a request fits: the server and request it names, prompt ids, limits."""

    server: str
    request: str
    prompt: Sequence[int]
    limit: int

    def lie(self, what: str, expected: str) -> ServerError:
        """The error for an answer that contradicts itself."""
        return ServerError(
            f"the server contradicts itself: {what}; expected {expected}",
            where=f"{self.server}, {self.request}",
            hint="nothing of this answer was recorded; check the server's version and its chat proxy, if any",
        )


def _understood(read: Callable[P, T]) -> Callable[P, T]:
    """A reader for which an answer of another shape is the server's fault, not a crash."""

    @wraps(read)
    def reader(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            where = next((f"{a.server}, {a.request}" for a in args if isinstance(a, Expected)), None)
            raise ServerError(
                f"the answer has a shape that is not understood: {error}",
                where=where or str(args[1]),
                hint="check the server's version and its chat proxy, if any",
            ) from error

    return reader


def first_choice(body: Json, server: str, request: str) -> Json:
    """The first choice of an answer."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ServerError("the answer holds no choice", where=f"{server}, {request}")
    return choices[0]


def finish_of(reason: str | None) -> tuple[Finish, str | None]:
    """How a completion ended, and the error if it is one."""
    if reason == "length":
        return "length", None
    if reason in ("content_filter", "abort", "error"):
        return "error", f"the server ended it: {reason}"
    return "stop", None


def _integers(values: Any) -> list[int] | None:
    # Python takes JSON's true for a whole number.
    if isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return list(values)
    return None


def _named_ids(tokens: Any) -> list[int] | None:
    if not isinstance(tokens, list) or not tokens:
        return None
    texts = [t.removeprefix(_NAMED) for t in tokens if isinstance(t, str) and t.startswith(_NAMED)]
    return [int(t) for t in texts] if len(texts) == len(tokens) and all(t.isdigit() for t in texts) else None


def _likeliest(entry: Any) -> list[float]:
    found = entry.values() if isinstance(entry, dict) else [e.get("logprob") for e in entry or ()]
    # A token that cannot come adds nothing to an entropy.
    return sorted((float(v) for v in found if v is not None and v != -math.inf), reverse=True)


def _top_first(block: Json) -> dict[str, float] | None:
    """The likeliest tokens of the first place, by name."""
    tops = block.get("top_logprobs")
    if isinstance(tops, list) and tops and isinstance(tops[0], dict):
        return {str(k): float(v) for k, v in tops[0].items() if v is not None}
    content = block.get("content")
    if isinstance(content, list) and content and content[0].get("top_logprobs"):
        return {str(e.get("id", e.get("token"))): float(e["logprob"]) for e in content[0]["top_logprobs"]}
    return None


@_understood
def read_completion(choice: Json, expected: Expected) -> ServerCompletion:
    """A choice of a completions answer, as far as the server gives it; checks the fit of its lists.

    Raises:
        ServerError: lengths differ, a log-prob is missing or positive, another prompt came back.
    """
    block = choice.get("logprobs") or {}
    content = block.get("content")
    entries = content if isinstance(content, list) else None
    named = _named_ids(block.get("tokens"))
    given = _integers(choice.get("token_ids"))
    by_entry = _integers([e.get("id") for e in entries]) if entries else None
    ids = next((found for found in (given, by_entry, named) if found is not None), None)
    values = [e.get("logprob") for e in entries] if entries is not None else block.get("token_logprobs")
    if given is not None and named is not None and given != named:
        raise expected.lie("its token ids and the ids of its log-probs differ", "the same ids twice")
    # A proxy may render or cut a prompt anew; log-probs would then be of another context.
    came_back = _integers(choice.get("prompt_token_ids"))
    if came_back is not None and came_back != list(expected.prompt):
        raise expected.lie(
            f"it read a prompt of {len(came_back)} other token ids", f"the {len(expected.prompt)} ids sent"
        )
    if ids is not None:
        _check_ids(ids, expected)
    if ids is not None and values is not None:
        _check_values(ids, values, expected)
    tops = [e.get("top_logprobs") for e in entries] if entries is not None else block.get("top_logprobs")
    finish, error = finish_of(choice.get("finish_reason"))
    stop = choice.get("stop_reason", choice.get("matched_stop"))
    return ServerCompletion(
        ids=ids,
        values=None if values is None else [float(v) for v in values],
        text=str(choice.get("text") or ""),
        finish=finish,
        stopped_by=stop if isinstance(stop, str) else None,
        top=[_likeliest(entry) for entry in tops] if isinstance(tops, list) else None,
        top_first=_top_first(block),
        error=error,
    )


def _check_ids(ids: list[int], expected: Expected) -> None:
    if not all(0 <= i < _MOST_IDS for i in ids):
        raise expected.lie("it gave a token id below 0 or above 2^31", "ids of tokens")
    if len(ids) > expected.limit:
        raise expected.lie(f"it gave {len(ids)} tokens", f"at most {expected.limit}")


def _check_values(ids: list[int], values: list[Any], expected: Expected) -> None:
    if len(values) != len(ids):
        raise expected.lie(f"it gave {len(values)} log-probs for {len(ids)} tokens", "one for each")
    for place, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise expected.lie(f"the log-prob of token {place} is {value!r}", "a number")
        if value > _ABOVE_ZERO:
            raise expected.lie(f"the log-prob of token {place} is {value:g}", "0 or less")


@_understood
def uncut(output: ServerCompletion, body: Json, expected: Expected) -> int | None:
    """How many tokens were said, where a stop string's were cut off the list (llama.cpp); else None."""
    counted = (body.get("usage") or {}).get("completion_tokens")
    if output.finish != "stop" or not isinstance(counted, int) or counted <= len(output.ids or ()):
        return None
    if counted > expected.limit:
        raise expected.lie(f"it counted {counted} tokens", f"at most {expected.limit}")
    return counted


def up_to(
    output: ServerCompletion,
    ends: Sequence[int],
    decode: Callable[[IntArray], str | None],
    expected: Expected,
) -> ServerCompletion:
    """A completion up to the first of the token ids that end it, for servers that know no such ids."""
    ids = output.ids or []
    count = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
    if count == len(ids):
        # The last token that there was room for may be one of them.
        return replace(output, finish="stop") if ids and ids[-1] in ends and output.error is None else output
    short = first_tokens(output, count, decode)
    if short is None:
        raise expected.lie(f"it went on after token {ids[count - 1]}", "that stop_token_ids are obeyed")
    return replace(short, finish="stop")


def first_tokens(
    output: ServerCompletion, count: int, decode: Callable[[IntArray], str | None]
) -> ServerCompletion | None:
    """The first tokens of a completion, which goes on behind them; None where their text cannot be known."""
    ids, values, top = output.ids or [], output.values, output.top
    text = decode(token_array(ids[:count])) if count else ""
    if text is None:
        return None
    return replace(
        output,
        ids=ids[:count],
        values=None if values is None else values[:count],
        top=None if top is None else top[:count],
        text=text,
        finish="length",
        error=None,
        stopped_by=None,
    )


@_understood
def check_prompt_count(body: Json, expected: Expected) -> None:
    """Refuse an answer whose usage says that another prompt was read."""
    counted = (body.get("usage") or {}).get("prompt_tokens")
    if isinstance(counted, int) and counted != len(expected.prompt):
        raise expected.lie(f"it counted {counted} prompt tokens", f"the {len(expected.prompt)} sent")


def check_text(output: ServerCompletion, codec: Codec, expected: Expected) -> None:
    """Refuse token ids that do not decode to the text they came with."""
    assert output.ids is not None
    outside = [i for i in output.ids if not 0 <= i < codec.vocabulary]
    if outside:
        raise expected.lie(f"it said token {outside[0]}", f"ids below {codec.vocabulary}, the vocabulary")
    ours = codec.decode(output.ids).lstrip(" ").rstrip("\ufffd")
    theirs = output.text.lstrip(" ").rstrip("\ufffd")
    trimmed = output.finish == "stop" and ours.startswith(theirs)
    # Servers may keep special tokens in the text, and may cut a stop string off it.
    if ours != theirs and not trimmed and codec.raw(output.ids).lstrip(" ") != theirs:
        raise expected.lie(
            f"its token ids mean {codec.decode(output.ids)!r}, its text is {output.text!r}",
            "token ids of the tokenizer that was given for it",
        )


@_understood
def read_echo(choice: Json, expected: Expected) -> FloatArray:
    """Log-probs of an echoed prompt's tokens but the first."""
    block = choice.get("logprobs") or {}
    values, count = block.get("token_logprobs"), len(expected.prompt)
    if not isinstance(values, list) or len(values) < count:
        found = len(values) if isinstance(values, list) else 0
        raise expected.lie(f"it echoed {found} log-probs", f"{count}, one for each token of the prompt")
    named = _named_ids(block.get("tokens"))
    if named is not None and named[:count] != list(expected.prompt):
        raise expected.lie("it echoed other token ids", "the ids sent")
    _check_values(list(expected.prompt[1:]), values[1:count], expected)
    return np.array(values[1:count], dtype=np.float32)


@_understood
def read_message(choice: Json, server: str) -> Message:
    """A chat reply of a server as a message: content, tool calls and reasoning, whatever it names them."""
    given = choice.get("message") or {}
    message: Message = {"role": "assistant", "content": _text_of(given.get("content"))}
    for name in ("tool_calls", "reasoning_content", "reasoning", "refusal"):
        if given.get(name):
            message[name] = given[name]
    return message


def _text_of(content: Any) -> str:
    """Text of a message's content, which some servers give in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if part.get("type") == "text")
    if not isinstance(content, str | None):
        raise TypeError(f"a message's content is {type(content).__name__}")
    return content or ""


def cost_of(bodies: Sequence[Json], seconds: float, price: tuple[float, float] | None) -> Cost:
    """What answers used: tokens by the servers' count, money from prices per million tokens (in, out)."""
    usages = [u if isinstance(u := body.get("usage"), dict) else {} for body in bodies]
    counts = (
        known_sum([count if isinstance(count := usage.get(name), int) else None for usage in usages])
        for name in ("prompt_tokens", "completion_tokens")
    )
    tokens_in, tokens_out = counts
    money = None
    if price is not None and tokens_in is not None and tokens_out is not None:
        money = (tokens_in * price[0] + tokens_out * price[1]) / 1e6
    return Cost(tokens_in=tokens_in, tokens_out=tokens_out, seconds=seconds, money=money)
