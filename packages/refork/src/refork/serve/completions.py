"""``POST /v1/completions``: text or token ids in, text, token ids and log-probs out."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from refork.serve.api import CompletionRequest
from refork.serve.asking import check_choices, holder_of, ignored_header, settings_of, tokens_of
from refork.serve.logprobs import Spell, by_id, completion_logprobs
from refork.serve.refusal import BadParameter
from refork.serve.served import ActiveRequest, Asked, Delta, TokenServed
from refork.serve.service import Running, Service
from refork.serve.stream import DONE, ChunkHead, answer, json_answer
from refork.serve.web import Request, Response
from refork.types import IntArray, Json, token_array

if TYPE_CHECKING:
    from refork.policies.base import Sampling


@final
@dataclass(slots=True)
class _Choice:
    """One choice as it is written: where its text stands, and what a whole answer joins."""

    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: Json | None = None
    ended: int = 0
    finish: str | None = None
    stop: str | None = None


async def complete(service: Service, body: CompletionRequest, request: Request) -> Response:
    """Answer one request, whole or as a stream.

    Raises: BadInput, Refused.
    """
    model = tokens_of(service.model(body.model), "plain completions", "model")
    _check(body, service)
    count = _count(body)
    check_choices(count * body.n, service.settings, "prompt" if count > 1 else "n")
    prompts = await _prompts(body, model)
    page = _Page(body, model, prompts)
    if body.echo:
        with service.admit(body.model, len(prompts)):
            await page.read_prompts()
    # Nothing is drawn, so no row is taken and nothing is recorded.
    if body.max_tokens == 0:
        return page.echoes()
    sampling = settings_of(body, service.settings, body.max_tokens, "max_tokens")
    call = ActiveRequest(
        operation="text_completion",
        model=body.model,
        asked=tuple(_asked(body, prompt, text, sampling) for prompt, text in prompts),
        prefix="cmpl-",
        stream=body.stream,
        holder=holder_of(request),
        headers=request.headers,
    )
    return await answer(service, call, page, ignored_header(body, model))


def _check(body: CompletionRequest, service: Service) -> None:
    if body.best_of not in (None, body.n):
        raise BadParameter("best_of", "best_of: only n answers are drawn, and all are given")
    if body.max_tokens == 0 and (not body.echo or body.stream):
        raise BadParameter("max_tokens", "max_tokens: 0 needs echo, and no stream")


def _count(body: CompletionRequest) -> int:
    """How many prompts there are."""
    given = body.prompt
    return 1 if isinstance(given, str) or (given and isinstance(given[0], int)) else len(given)


async def _prompts(body: CompletionRequest, model: TokenServed) -> list[tuple[IntArray, str | None]]:
    """Token ids of every prompt, and its text where it came as one."""
    given = body.prompt
    if isinstance(given, str):
        given = [given]
    if not given:
        raise BadParameter("prompt", "prompt: there is none")
    if isinstance(given[0], int):
        return [(token_array(given), None)]
    return [
        (await model.encode(one), one) if isinstance(one, str) else (token_array(one), None) for one in given
    ]


def _asked(body: CompletionRequest, prompt: IntArray, text: str | None, sampling: Sampling) -> Asked:
    return Asked(
        tokens=prompt,
        text=text,
        n=body.n,
        seed=body.seed,
        settings=sampling,
        top=body.logprobs or 0,
        keep_stop=body.include_stop_str_in_output or body.no_stop_trim,
    )


@final
class _Page:
    """All choices of one request, as they are written on the wire."""

    def __init__(
        self, body: CompletionRequest, model: TokenServed, prompts: list[tuple[IntArray, str | None]]
    ) -> None:
        self._body, self._model, self._prompts = body, model, prompts
        self._spell: Spell = by_id if body.return_tokens_as_token_ids else model.spell
        self._choices = [_Choice() for _ in range(len(prompts) * body.n)]
        self._echoes: list[Json] = [{} for _ in prompts]

    async def read_prompts(self) -> None:
        """Texts and log-probs of the prompts, which are to be given back."""
        for number, (tokens, _) in enumerate(self._prompts):
            text, ends = self._model.pieces(tokens.tolist())
            echo: Json = {"text": text, "logprobs": None}
            if self._body.logprobs is not None:
                values, tops = await self._model.score(tokens, self._body.logprobs)
                echo["logprobs"] = completion_logprobs(
                    tokens.tolist(),
                    [None, *values],
                    [None, *tops] if self._body.logprobs else None,
                    ends.tolist(),
                    0,
                    self._spell,
                )
            self._echoes[number] = echo

    def echoes(self) -> Response:
        """The prompts alone: nothing is drawn."""
        read = sum(len(tokens) for tokens, _ in self._prompts)
        for choice in self._choices:
            choice.finish = "length"
        usage = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
        return json_answer(self._written(f"cmpl-{uuid.uuid4().hex}", int(time.time()), usage))

    def put(self, number: int, delta: Delta) -> str:
        """Add what is new to a choice of prompt ``number``; the text that may be sent now."""
        choice = self._choices[number * self._body.n + delta.choice]
        # Before the text moves on: its first token begins where the last part ended.
        logprobs = self._logprobs(number, choice, delta)
        choice.text.append(delta.text)
        choice.tokens += delta.tokens
        choice.finish = delta.finish or choice.finish
        choice.stop = delta.stop or choice.stop
        choice.ended = delta.ends[-1] if len(delta.ends) else choice.ended
        if logprobs is not None:
            choice.logprobs = _joined(choice.logprobs, logprobs)
        return delta.text

    def ended(self, running: Running) -> None:
        """The choices are recorded as they came."""

    def _logprobs(self, number: int, choice: _Choice, delta: Delta) -> Json | None:
        if self._body.logprobs is None:
            return None
        shift = len(self._echoes[number].get("text", ""))
        return completion_logprobs(
            delta.tokens,
            list(delta.logprobs),
            list(delta.top) if self._body.logprobs else None,
            [shift + end for end in delta.ends],
            shift + choice.ended,
            self._spell,
        )

    async def events(self, running: Running) -> AsyncGenerator[bytes]:
        """The answers as chunks. A chunk goes out where there is text, or what was asked for beside it."""
        body = self._body
        head = ChunkHead(id=running.id, object="text_completion", created=running.created, model=body.model)
        verbose = body.logprobs is not None or body.return_token_ids
        if body.echo:
            for index in range(len(self._choices)):
                echo = self._echoes[index // body.n]
                yield head.chunk(json.dumps({"index": index, "finish_reason": None, **echo}))
        last: list[bytes] = []
        async for number, deltas in running.parts():
            for delta in deltas:
                index = number * body.n + delta.choice
                choice = self._choices[index]
                if delta.text or (verbose and delta.tokens) or delta.finish:
                    chunk = head.chunk(self._chunk(number, index, choice, delta, verbose))
                    # The end of an answer is told once it is on record.
                    if delta.finish:
                        last.append(chunk)
                    else:
                        yield chunk
                choice.ended = delta.ends[-1] if len(delta.ends) else choice.ended
        await running.end()
        for chunk in last:
            yield chunk
        if body.stream_options.include_usage:
            yield head.usage(running.usage)
        yield DONE

    def _chunk(self, number: int, index: int, choice: _Choice, delta: Delta, verbose: bool) -> str:
        if not verbose and delta.finish is None:
            return _PLAIN % (index, json.dumps(delta.text))
        row: Json = {
            "index": index,
            "text": delta.text,
            "logprobs": self._logprobs(number, choice, delta),
            "finish_reason": delta.finish,
        }
        if delta.stop is not None:
            row["stop_reason"] = delta.stop
        if self._body.return_token_ids:
            row["token_ids"] = list(delta.tokens)
        return json.dumps(row)

    def whole(self, running: Running) -> Json:
        """The whole answer."""
        return self._written(running.id, running.created, running.usage)

    def _written(self, name: str, created: int, usage: Json | None) -> Json:
        rows = []
        for index, choice in enumerate(self._choices):
            number = index // self._body.n
            echo = self._echoes[number]
            logprobs = choice.logprobs
            if echo.get("logprobs") is not None:
                logprobs = _joined(echo["logprobs"], logprobs)
            row: Json = {
                "index": index,
                "text": echo.get("text", "") + "".join(choice.text),
                "logprobs": logprobs,
                "finish_reason": choice.finish,
            }
            if choice.stop is not None:
                row["stop_reason"] = choice.stop
            if self._body.return_token_ids:
                row["token_ids"] = choice.tokens
                row["prompt_token_ids"] = self._prompts[number][0].tolist()
            rows.append(row)
        return {
            "id": name,
            "object": "text_completion",
            "created": created,
            "model": self._body.model,
            "choices": rows,
            "usage": usage,
        }


_PLAIN = '{"index": %d, "text": %s, "logprobs": null, "finish_reason": null}'


def _joined(first: Json | None, more: Json | None) -> Json | None:
    """Two parts of log-probs as one."""
    if first is None or more is None:
        return first or more
    joined: Json = {}
    for key, values in first.items():
        joined[key] = None if values is None or more[key] is None else values + more[key]
    return joined
