"""What a server can do, found out once with a few short calls instead of believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from refork.errors import ServerError
from refork.policies.remote.answers import (
    Expected,
    ServerCompletion,
    check_prompt_count,
    first_choice,
    read_completion,
    read_echo,
    read_message,
)
from refork.policies.remote.calls import CallFailed
from refork.policies.remote.endpoint import Endpoint
from refork.types import Json

LogprobKind = Literal["t1", "sampled"]

#: Asked of every server that may give token ids; servers ignore what they do not know, or refuse.
TOKEN_IDS: Json = {"return_token_ids": True, "return_tokens_as_token_ids": True}
#: Filters that nobody asked for, switched off in words: what a request leaves out, servers take from the
#: model's generation_config.json (vLLM, SGLang) or from defaults of their own (llama.cpp). The top-k is one
#: that every server reads as "all": they differ on whether -1 or 0 says so.
NO_FILTERS: Json = {
    "top_k": 1 << 30,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "repeat_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
#: Kinds of servers, by what their lists of models say owns a model.
KINDS: Final = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "refork": "refork",
    "ramify": "refork",
}
#: llama.cpp's own order has the temperature last, so that top-p and min-p would act at temperature 1; and its
#: penalties read the last 64 tokens only.
_LLAMA_ORDER: Json = {
    "samplers": ["penalties", "temperature", "min_p", "top_k", "top_p"],
    "repeat_last_n": -1,
}
#: Seeds that are each asked twice: at first, and where those leave it open.
_PAIRS, _MORE_PAIRS = 7, 10
_WIDE, _NARROW = 48, 31
_LENGTH = 8
#: A model that no server has.
_NOBODY = "no-such-model"
#: Ids that every vocabulary has.
_PROMPT = (4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class ServerAbilities:
    """What the probe showed.

    ``kind`` is whose server it is, by its list of models (None: not known). ``bias``: a logit_bias of -100
    kept the likeliest token out. ``seed_bits``: how long a seed it takes. ``logprob_kind``: which
    distribution the server's log-probs
    are of (temperature 1 and no filter, or the sampled one); None where that could not be told. ``paired``:
    equal seeds gave equal texts and other seeds others, so often that a server which ignores seeds does it
    less than once in a million probes (see :func:`honours`). ``filters``: whether it takes the words that
    switch off filters which nobody asked for.
    """

    tokens: bool
    why_not: str | None = None
    logprobs: bool = False
    logprob_kind: LogprobKind | None = None
    scores: bool = False
    paired: bool = False
    seed: str = "not known"
    limit_name: str = "max_tokens"
    free_temperature: bool = True
    filters: bool = True
    context: int | None = None
    kind: str | None = None
    bias: bool = False
    seed_bits: int = _WIDE

    @property
    def order(self) -> Json:
        """What tells a server of this kind to let its filters act in the order of :class:`Sampling`."""
        return _LLAMA_ORDER if self.kind == "llama.cpp" else {}


Seeds = Literal["honoured", "ignored", "not known"]


def honours(firsts: Sequence[Hashable], seconds: Sequence[Hashable]) -> Seeds:
    """Whether a server honours seeds, from what it said to some distinct ones, and to the same ones again.

    "honoured" takes one of two outcomes: all of the first 7 pairs are equal and their texts all differ, or at
    least 8 of 10 pairs are equal, of at least 7 texts (rounding may part two texts of one seed where the
    server puts them into other batches). Let a server ignore seeds, so that all texts are independent draws
    of one distribution. Whatever that distribution is, the first outcome has a chance below 1e-8 and the
    second one below 2.4e-7; the worst distribution is uniform over 7 or 8 texts. A probe looks at most four
    times (two lengths of seeds, two temperatures): below one in a million. "ignored" takes pairs of which
    more than half differ. All else is not known: a model that is sure of its answer says the same to every
    seed.
    """
    equal = [one for one, other in zip(firsts, seconds, strict=True) if one == other]
    if len(firsts) == _PAIRS and len(equal) == len(set(equal)) == _PAIRS:
        return "honoured"
    if len(firsts) >= _MORE_PAIRS and len(equal) >= _MORE_PAIRS - 2 and len(set(equal)) >= _MORE_PAIRS - 3:
        return "honoured"
    return "ignored" if 2 * len(equal) < len(firsts) else "not known"


def _seeds(say: Callable[[int], Hashable], together: int, wide: int) -> tuple[bool, str, int]:
    """Whether draws of equal seeds are paired, what was found in words, and how long seeds may be.

    Every seed is asked once alone and once beside others, as draws are: a server with one generator for all
    that it serves at a time honours seeds only alone.
    """
    # Large numbers, since draws have such; far apart, since neighbours might be told apart by a cache alone.
    seeds = [(i * 0x9E3779B97F4A7C15) % (1 << wide) for i in range(1, _MORE_PAIRS + 1)]
    firsts: list[Hashable] = []
    seconds: list[Hashable] = []
    with ThreadPoolExecutor(together) as pool:
        for part in (seeds[:_PAIRS], seeds[_PAIRS:]):
            firsts += [say(seed) for seed in part]
            seconds += pool.map(say, part)
            found = honours(firsts, seconds)
            if found == "honoured" or len(set(firsts)) == 1:
                break
    equal = sum(one == other for one, other in zip(firsts, seconds, strict=True))
    told = f"{equal} of {len(firsts)} seeds gave the same text twice, {len(set(firsts))} texts in all"
    if found != "honoured" and together > 1 and len(set(firsts)) > 1:
        again = [say(seed) for seed in seeds[: len(firsts)]]
        if honours(firsts, again) == "honoured":
            return False, "honoured one request at a time only: use concurrency=1", wide
    if len(set(firsts)) == 1 and wide == _WIDE:
        # A server that takes no long seeds may cut them all to the same one.
        short = _seeds(say, together, _NARROW)
        if short[0]:
            return short
    return found == "honoured", f"{found}: {told}", wide


def probe(endpoint: Endpoint, prompt: Sequence[int] | None = None, together: int = 1) -> ServerAbilities:
    """Try completions with token ids; where that fails, chat.

    At most thirty calls of sixteen tokens each, most often twenty. ``together`` is how many requests will be
    under way at a time.

    Raises:
        ServerError: neither works, the answers contradict themselves, or the model's name stands for nothing.
    """
    ids = list(prompt) if prompt else list(_PROMPT)
    listed = endpoint.models()
    known = ServerAbilities(tokens=False, context=_context(endpoint.model, listed), kind=_kind(listed))
    found = _probe_tokens(endpoint, ids, known, together)
    found = found if found.tokens else _probe_chat(endpoint, found, together)
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


def _kind(listed: list[Json]) -> str | None:
    """Whose server it is, where its models name one owner that is known."""
    owners = {str(item.get("owned_by")).lower() for item in listed}
    return KINDS.get(owners.pop()) if len(owners) == 1 else None


def _check_name(endpoint: Endpoint, listed: list[Json], found: ServerAbilities, prompt: list[int]) -> None:
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


def _probe_tokens(
    endpoint: Endpoint, prompt: list[int], known: ServerAbilities, together: int
) -> ServerAbilities:
    expected = Expected(endpoint.server, "probe of token ids", prompt, _LENGTH)

    def ask(seed: int, temperature: float, **more: Any) -> ServerCompletion:
        body: Json = {
            "prompt": prompt,
            "max_tokens": _LENGTH,
            "temperature": temperature,
            "top_p": 1.0,
            "seed": seed,
            "logprobs": 5,
        }
        answer = endpoint.completion(body | more, expected.request, TOKEN_IDS | NO_FILTERS | known.order)
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
        return replace(known, why_not=f"it refused a prompt of token ids: {error.what}")
    if not first.ids:
        return replace(known, why_not="its completions come without token ids")
    wide = _WIDE
    try:
        ask((1 << _WIDE) - 1, 1.5)
    except CallFailed as error:
        if error.status is None:
            raise
        wide = _NARROW
    paired, seed, wide = _seeds(lambda seed: tuple(ask(seed, 1.5).ids or ()), together, wide)
    # The likeliest token of a greedy draw: if a bias keeps even that one out, it keeps any out.
    best = (ask(1, 0.0).ids or [-1])[0]
    return replace(
        known,
        tokens=True,
        logprobs=first.values is not None,
        logprob_kind=_logprob_kind(first, ask(1, 0.5)),
        scores=_scores(endpoint, prompt),
        paired=paired,
        seed=seed,
        seed_bits=wide,
        bias=(ask(1, 0.0, logit_bias={str(best): -100.0}).ids or [best])[0] != best,
    )


def _logprob_kind(hot: ServerCompletion, cold: ServerCompletion) -> LogprobKind | None:
    """Log-probs of the same first place that temperature does not move are of temperature 1."""
    shared = set(hot.top_first or {}) & set(cold.top_first or {})
    if hot.top_first is None or cold.top_first is None or len(shared) < 2:
        return None
    values = [cold.top_first[name] for name in shared]
    # What is nearly even stays so at any temperature, and tells nothing.
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


def _probe_chat(endpoint: Endpoint, known: ServerAbilities, together: int) -> ServerAbilities:
    able = known

    def ask(seed: int, temperature: float = 1.0) -> str:
        body: Json = {
            # An answer that a model draws by lot: the words of a question that has one answer tell nothing.
            "messages": [{"role": "user", "content": "Write twenty random digits, nothing else."}],
            able.limit_name: 16,
            "seed": seed,
        }
        if able.free_temperature:
            body["temperature"] = temperature
        if able.filters:
            body["top_p"] = 1.0
        answer = endpoint.chat(body, "probe of chat", NO_FILTERS | able.order if able.filters else None)
        said = read_message(first_choice(answer, endpoint.server, "probe of chat"), endpoint.server)
        # What a model thinks aloud is drawn too.
        return json.dumps(said, sort_keys=True)

    first: str | None = None
    while first is None:
        try:
            first = ask((1 << able.seed_bits) - 1)
        except CallFailed as error:
            if error.status is None:
                raise
            without = _without(able, error.what)
            if without is None:
                raise ServerError(
                    f"the server takes neither token ids ({known.why_not}) nor chat ({error.what})",
                    where=endpoint.server,
                    hint=f"check the address and the model's name, {endpoint.model!r}",
                ) from None
            able = without
    paired, seed, bits = _seeds(ask, together, able.seed_bits)
    if seed.startswith("not known") and able.free_temperature:
        # A model so sure of its answer tells nothing about seeds; a hot one does, where it may be asked.
        with suppress(CallFailed):
            paired, seed, bits = _seeds(lambda seed: ask(seed, 2.0), together, able.seed_bits)
    return replace(able, paired=paired, seed=seed, seed_bits=bits)


def _without(able: ServerAbilities, refusal: str) -> ServerAbilities | None:
    """Less to ask of a chat server that refused: what it named, else the filters; None: nothing is left."""
    if able.filters and any(name in refusal for name in (*NO_FILTERS, "top_p")):
        return replace(able, filters=False)
    if "max_completion_tokens" in refusal and able.limit_name == "max_tokens":
        return replace(able, limit_name="max_completion_tokens")
    if "temperature" in refusal and able.free_temperature:
        return replace(able, free_temperature=False)
    if "seed" in refusal and able.seed_bits == _WIDE:
        return replace(able, seed_bits=_NARROW)
    return replace(able, filters=False) if able.filters else None
