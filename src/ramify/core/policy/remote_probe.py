"""What a server can do, found out once with a few short calls instead of believed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
#: Filters that nobody asked for, switched off in words: what a request leaves out, servers take from the
#: model's generation_config.json (vLLM, SGLang) or from defaults of their own (llama.cpp). The top-k is one
#: that every server reads as "all": they differ on whether -1 or 0 says so.
NO_FILTERS: Json = {"top_k": 1 << 30, "min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
_LENGTH = 8
#: A model that no server has.
_NOBODY = "no-such-model"
#: Ids that every vocabulary has.
_PROMPT = (4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the probe showed.

    ``law``: which law the server's log-probs are of (temperature 1 and no filter, or the sampled one);
    None where that could not be told. ``paired``: the same seed gave the same tokens, another seed others.
    ``filters``: whether it takes the words that switch off filters which nobody asked for.
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
    filters: bool = True
    context: int | None = None


def probe(endpoint: Endpoint, prompt: Sequence[int] | None = None) -> Abilities:
    """Try completions with token ids; where that fails, chat. At most twelve calls of at most sixteen tokens.

    Raises:
        ServerError: neither works, the answers contradict themselves, or the model's name stands for nothing.
    """
    ids = list(prompt) if prompt else list(_PROMPT)
    listed = endpoint.models()
    context = _context(endpoint.model, listed)
    found = _probe_tokens(endpoint, ids, context)
    found = found if found.tokens else _probe_chat(endpoint, found.why_not or "", context)
    _check_name(endpoint, listed, found, ids)
    return found


def _names(item: Json) -> list[str]:
    aliases = item.get("aliases")
    return [str(item.get("id")), *(map(str, aliases) if isinstance(aliases, list) else ())]


def _context(model: str, listed: list[Json]) -> int | None:
    """The model's context length in tokens, where the list of models says it."""
    for item in listed:
        if model in _names(item):
            meta = item.get("meta")
            meta = meta if isinstance(meta, dict) else {}
            found = item.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train")
            return found if isinstance(found, int) else None
    return None


def _check_name(endpoint: Endpoint, listed: list[Json], found: Abilities, prompt: list[int]) -> None:
    """Refuse a name that is not listed where any name is answered to: another model would be recorded."""
    names = [name for item in listed for name in _names(item)]
    if not names or endpoint.model in names:
        return
    try:
        if found.tokens:
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 1.0}
            endpoint.completion(body, "probe of names", model=_NOBODY)
        else:
            body = {"messages": [{"role": "user", "content": "?"}], found.limit_name: 16}
            endpoint.chat(body, "probe of names", model=_NOBODY)
    except ServerError:
        return
    shown = ", ".join(repr(name) for name in names[:5])
    raise ServerError(
        f"the server has no model {endpoint.model!r}, and answers to any name with another",
        where=endpoint.server,
        hint=f"it lists {shown}{' and more' if len(names) > 5 else ''}",
    )


def _probe_tokens(endpoint: Endpoint, prompt: list[int], context: int | None) -> Abilities:
    expected = Expected(endpoint.server, "probe of token ids", prompt, _LENGTH)

    def ask(seed: int, temperature: float) -> Said:
        body = {
            "prompt": prompt,
            "max_tokens": _LENGTH,
            "temperature": temperature,
            "top_p": 1.0,
            "seed": seed,
            "logprobs": 5,
        }
        answer = endpoint.completion(body, expected.request, TOKEN_IDS | NO_FILTERS)
        said = read_completion(first_choice(answer, expected.server, expected.request), expected)
        if said.ids is not None:
            check_prompt_count(answer, expected)
        return said

    try:
        first = ask(1, 1.5)
    except CallFailed as error:
        # Some servers say 500 of a prompt that they did not expect, and will say so for ever.
        if error.status is None and error.last != 500:
            raise
        return Abilities(tokens=False, why_not=f"it refused a prompt of token ids: {error.what}")
    if not first.ids:
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
    able = Abilities(tokens=False, why_not=why_not, context=context)

    def ask(seed: int, temperature: float = 1.0) -> Json:
        body: Json = {
            "messages": [{"role": "user", "content": "Name a colour, any."}],
            able.limit_name: 16,
            "seed": seed,
        }
        if able.free_temperature:
            body["temperature"] = temperature
        if able.filters:
            body["top_p"] = 1.0
        answer = endpoint.chat(body, "probe of chat", NO_FILTERS if able.filters else None)
        return read_message(first_choice(answer, endpoint.server, "probe of chat"), endpoint.server)

    first: Json | None = None
    while first is None:
        try:
            first = ask(1)
        except CallFailed as error:
            if error.status is None:
                raise
            without = _without(able, error.what)
            if without is None:
                raise ServerError(
                    f"the server takes neither token ids ({why_not}) nor chat ({error.what})",
                    where=endpoint.server,
                    hint=f"check the address and the model's name, {endpoint.model!r}",
                ) from None
            able = without
    replies = [first["content"], ask(1)["content"], ask(2)["content"]]
    if len(set(replies)) == 1 and able.free_temperature:
        # A model so sure of its answer tells nothing about seeds; a hot one does, where it may be asked.
        with suppress(CallFailed):
            replies = [ask(seed, 2.0)["content"] for seed in (1, 1, 2)]
    same, differs = replies[0] == replies[1], replies[0] != replies[2]
    seed = "honoured" if same and differs else "unclear" if same else "ignored"
    return replace(able, paired=same and differs, seed=seed)


def _without(able: Abilities, refusal: str) -> Abilities | None:
    """Less to ask of a chat server that refused: what it named, else the filters; None: nothing is left."""
    if able.filters and any(name in refusal for name in (*NO_FILTERS, "top_p")):
        return replace(able, filters=False)
    if "max_completion_tokens" in refusal and able.limit_name == "max_tokens":
        return replace(able, limit_name="max_completion_tokens")
    if "temperature" in refusal and able.free_temperature:
        return replace(able, free_temperature=False)
    return replace(able, filters=False) if able.filters else None
