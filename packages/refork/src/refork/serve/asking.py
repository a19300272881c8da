"""From a request's fields to how tokens are drawn, and what of them is refused or has no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refork.policies.base import Sampling
from refork.serve.api import SETTINGS, UNSUPPORTED, Body, SamplingBody, ignored_names
from refork.serve.limits import token_limit
from refork.serve.refusal import BadParameter, require_text
from refork.serve.served import Served, TokenServed, speaks_tokens
from refork.serve.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.requests import Request

_NEVER = -100.0
_STOPS, _STOP_LENGTH = 16, 1000
#: Temperatures below it (but for 0) divide logits beyond what float32 holds.
_COLDEST = 1e-20
#: Tokens of an answer, where neither server nor context sets a limit.
_MOST = 1 << 31


def settings_of(body: SamplingBody, server: ServerSettings, limit: int | None, name: str) -> Sampling:
    """How a request's tokens are drawn; ``limit`` is what its field ``name`` gave.

    Raises: BadParameter for what cannot be had.
    """
    refuse_unsupported(body)
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > _STOPS or not all(0 < len(stop) <= _STOP_LENGTH for stop in stops):
        said = f"stop: at most {_STOPS} strings, none of them empty or of over {_STOP_LENGTH:,} characters"
        raise BadParameter("stop", said)
    require_text("".join(stops), "stop")
    if body.temperature is not None and 0 < body.temperature < _COLDEST:
        raise BadParameter("temperature", f"temperature: 0 (greedy), or at least {_COLDEST:g}")
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        # 0 means all to some servers, -1 to others.
        top_k=body.top_k if body.top_k and body.top_k > 0 else None,
        top_p=body.top_p,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        max_tokens=min(token_limit(limit, server.max_tokens, server.default_tokens, name), _MOST),
        stop=tuple(stops),
        stop_ids=tuple(body.stop_token_ids),
        banned=_banned(body.logit_bias),
        ignore_eos=body.ignore_eos,
    )


def _banned(bias: dict[str, float]) -> tuple[int, ...]:
    """Tokens that are never drawn. Raises BadParameter for any other bias."""
    banned = []
    for token, value in bias.items():
        if value == 0:
            continue
        # Nine digits are more than a vocabulary needs, and keep `int` from reading a number of any length.
        if value != _NEVER or not (token.isascii() and token.isdigit()) or len(token) > 9:
            raise BadParameter("logit_bias", "logit_bias: only token ids with -100 (never) can be had here")
        banned.append(int(token))
    return tuple(sorted(banned))


def refuse_unsupported(body: Body) -> None:
    """Refuse settings that would change what is drawn and that no model here has."""
    for name, value in body.unknown.items():
        if name in UNSUPPORTED and value not in UNSUPPORTED[name]:
            raise BadParameter(name, f"{name}: {value!r} cannot be had here"[:200])


def check_choices(count: int, server: ServerSettings, name: str = "n") -> None:
    """Refuse more choices than a request may have."""
    if count > server.max_choices:
        raise BadParameter(name, f"{name}: {count} choices; a request may have {server.max_choices} here")


def tokens_of(model: Served, what: str, param: str) -> TokenServed:
    """The model, if it speaks tokens. Raises BadParameter naming what needs that."""
    if not speaks_tokens(model):
        raise BadParameter(param, f"{model.name} speaks messages only: it has no {what}")
    return model


def ignored_header(body: Body, model: Served) -> dict[str, str]:
    """The header ``refork-ignored``: fields of a request that have no effect on this model."""
    names = set(body.unknown)
    if speaks_tokens(model):
        names -= set(UNSUPPORTED)
    else:
        names |= SETTINGS & body.model_fields_set
    return {"refork-ignored": ignored_names(names)} if names else {}


def holder_of(request: Request) -> str | None:
    """Who asks, as the guard named him."""
    found = getattr(request.state, "holder", None)
    return str(found) if found is not None else None
