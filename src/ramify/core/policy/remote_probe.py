"""What a server can do, found out once with a few short calls instead of believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ramify.core.errors import ServerError
from ramify.core.policy.remote_call import CallFailed
from ramify.core.policy.remote_endpoint import Endpoint
from ramify.core.policy.remote_wire import (
    Expected,
    Said,
    check_prompt_count,
    first_choice,
    read_completion,
    read_echo,
    read_message,
)
from ramify.core.types import Json

LogprobLaw = Literal["t1", "sampled"]

#: Asked of every server that may give token ids; servers ignore what they do not know, or refuse.
TOKEN_IDS: Json = {"return_token_ids": True, "return_tokens_as_token_ids": True}
_LENGTH = 8
#: Ids that every vocabulary has.
_PROMPT = (4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the probe showed.

    ``law``: which law the server's log-probs are of (temperature 1 and no filter, or the sampled one);
    None where that could not be told. ``paired``: the same seed gave the same tokens, another seed others.
    """

    tokens: bool
    why_not: str | None = None
    logprobs: bool = False
    law: LogprobLaw | None = None
    scores: bool = False
    paired: bool = False
    seed: str = "unclear"
    limit_name: str = "max_tokens"
    free_temperature: bool = True
    context: int | None = None


def probe(endpoint: Endpoint, prompt: Sequence[int] | None = None) -> Abilities:
    """Try completions with token ids; where that fails, chat. At most eight calls of at most sixteen tokens.

    Raises:
        ServerError: neither works, or the answers contradict themselves.
    """
    ids = list(prompt) if prompt else list(_PROMPT)
    context = endpoint.context()
    found = _probe_tokens(endpoint, ids, context)
    return found if found.tokens else _probe_chat(endpoint, found.why_not or "", context)


def _probe_tokens(endpoint: Endpoint, prompt: list[int], context: int | None) -> Abilities:
    expected = Expected(endpoint.server, "probe of token ids", prompt, _LENGTH)

    def ask(seed: int, temperature: float) -> Said:
        body = {
            "prompt": prompt,
            "max_tokens": _LENGTH,
            "temperature": temperature,
            "seed": seed,
            "logprobs": 5,
        }
        answer = endpoint.completion(body, expected.request, TOKEN_IDS)
        said = read_completion(first_choice(answer, expected.server, expected.request), expected)
        if said.ids is not None:
            check_prompt_count(answer, expected)
        return said

    try:
        first = ask(1, 1.5)
    except CallFailed as error:
        if error.status is None:
            raise
        return Abilities(tokens=False, why_not=f"it refused a prompt of token ids: {error.what}")
    if first.ids is None:
        return Abilities(tokens=False, why_not="its completions come without token ids")
    again, other, cold = ask(1, 1.5), ask(2, 1.5), ask(1, 0.5)
    same, differs = first.ids == again.ids, first.ids != other.ids
    return Abilities(
        tokens=True,
        logprobs=first.values is not None,
        law=_law(first, cold),
        scores=_scores(endpoint, prompt),
        paired=same and differs,
        seed="honoured" if same and differs else "unclear" if same else "ignored",
        context=context,
    )


def _law(hot: Said, cold: Said) -> LogprobLaw | None:
    """Log-probs of the same first place that temperature does not move are of temperature 1."""
    shared = set(hot.top_first or {}) & set(cold.top_first or {})
    if hot.top_first is None or cold.top_first is None or len(shared) < 2:
        return None
    values = [cold.top_first[name] for name in shared]
    if max(values) - min(values) < 0.2:
        return None
    moved = max(abs(hot.top_first[name] - cold.top_first[name]) for name in shared)
    return "sampled" if moved > 0.05 else "t1"


def _scores(endpoint: Endpoint, prompt: list[int]) -> bool:
    expected = Expected(endpoint.server, "probe of echoed log-probs", prompt, 1)
    body = {"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 1.0}
    try:
        answer = endpoint.completion(body, expected.request, TOKEN_IDS)
        read_echo(first_choice(answer, expected.server, expected.request), expected)
    except CallFailed as error:
        if error.status is None:
            raise
        return False
    except ServerError:
        return False
    return True


def _probe_chat(endpoint: Endpoint, why_not: str, context: int | None) -> Abilities:
    limit, free = "max_tokens", True

    def ask(seed: int) -> Json:
        body: Json = {
            "messages": [{"role": "user", "content": "Name a colour, any."}],
            limit: 16,
            "seed": seed,
        }
        if free:
            body["temperature"] = 1.0
        answer = endpoint.chat(body, "probe of chat")
        return read_message(first_choice(answer, endpoint.server, "probe of chat"))

    first: Json | None = None
    while first is None:
        try:
            first = ask(1)
        except CallFailed as error:
            if error.status is None:
                raise
            if "max_completion_tokens" in error.what and limit == "max_tokens":
                limit = "max_completion_tokens"
            elif "temperature" in error.what and free:
                free = False
            else:
                raise ServerError(
                    f"the server takes neither token ids ({why_not}) nor chat ({error.what})",
                    where=endpoint.server,
                    hint=f"check the address and the model's name, {endpoint.model!r}",
                ) from None
    again, other = ask(1), ask(2)
    same, differs = first["content"] == again["content"], first["content"] != other["content"]
    return Abilities(
        tokens=False,
        why_not=why_not,
        paired=same and differs,
        seed="honoured" if same and differs else "unclear" if same else "ignored",
        limit_name=limit,
        free_temperature=free,
        context=context,
    )
