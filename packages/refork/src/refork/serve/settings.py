"""How a server behaves: one value, checked where it is made."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, final

from refork.errors import BadInput
from refork.serve.gate import check_names, check_origins
from refork.serve.keys import check_address


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Address, keys, limits and options of a server. None stands for no limit.

    ``keys``: what clients may send as API key; none: nobody needs one. ``hosts``: names that requests may
    name the server by, beside this machine's and the address listened on (with keys: any, where none are
    given). ``origins``: pages that may ask from elsewhere, as browsers write them. ``lanes``: questions that
    a chat model is asked at the same time; ``width``: answers that a local model draws at the same time.
    ``waiting``: choices that may wait for a lane or a row of one model; more are refused (429).
    ``per_key_requests`` at the same time and ``per_key_per_minute`` are those of one key (of everybody,
    where there are no keys). ``timeout_s``: of a whole answer, waiting included; ``body_s``: of a request's
    arrival; ``drain_s``: what running answers get when the server stops. ``max_body``: bytes of a request.
    ``max_tokens``: of one choice; a request that names none gets ``default_tokens`` or less.
    ``max_choices``: of one request. ``connections``: open at the same time. ``record``: the tree that every
    answer is written to; ``record_strict``: an answer that cannot be recorded is not given. ``record_s``:
    seconds that an answer waits for its record. ``pin``: a policy file whose rules stand in every chat;
    ``pin_withhold``: tool calls that break one are taken out of the answer. ``otlp``: where spans go;
    ``trace_content``: texts too. ``world_sessions``: episodes of simulated worlds that may be open;
    ``world_idle_s``: seconds after which one that nobody acts in is forgotten.

    Raises:
        BadInput: a limit, name or origin that is none, or an address beyond this machine without a key.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    keys: frozenset[str] = field(default=frozenset(), repr=False)
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    lanes: int = 1
    width: int = 16
    waiting: int = 256
    per_key_requests: int | None = None
    per_key_per_minute: int | None = None
    timeout_s: float | None = 600.0
    body_s: float = 30.0
    drain_s: float = 30.0
    max_body: int = 16 << 20
    max_tokens: int | None = None
    default_tokens: int = 256
    max_choices: int = 64
    connections: int = 1024
    record: Path | None = None
    record_strict: bool = False
    record_s: float = 30.0
    pin: Path | None = None
    pin_withhold: bool = True
    otlp: str | None = None
    trace_content: bool = False
    world_sessions: int = 1024
    world_idle_s: float = 1800.0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _require(name, getattr(self, name), 1)
        for name in ("per_key_requests", "per_key_per_minute", "max_tokens"):
            if getattr(self, name) is not None:
                _require(name, getattr(self, name), 1)
        _require("waiting", self.waiting, 0)
        _require("port", self.port, 0)
        if self.port > 65535:
            raise _refuse("port", self.port, "at most 65535")
        for name in ("timeout_s", "body_s", "drain_s", "record_s", "world_idle_s"):
            if name != "timeout_s" or self.timeout_s is not None:
                _require_seconds(name, getattr(self, name))
        for name in ("record_strict", "pin_withhold", "trace_content"):
            if not isinstance(getattr(self, name), bool):
                raise _refuse(name, getattr(self, name), "true or false")
        if any(not key.strip() or key != key.strip() for key in self.keys):
            raise BadInput("an API key is empty or has spaces around it", where="server settings")
        check_address(self.host, self.keys)
        check_names(self.hosts)
        check_origins(self.origins)


_COUNTS = ("lanes", "width", "max_body", "default_tokens", "max_choices", "connections", "world_sessions")


def _require(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _refuse(name, value, f"a whole number, {least} or more")


def _require_seconds(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise _refuse(name, value, "a positive number of seconds")


def _refuse(name: str, value: object, rule: str) -> BadInput:
    known = ", ".join(f.name for f in fields(ServerSettings))
    return BadInput(
        f"{name} is {value!r}; it must be {rule}", where="server settings", hint=f"settings: {known}"
    )


def changed(settings: ServerSettings, items: Sequence[str]) -> ServerSettings:
    """Settings with ``name=value`` items changed; ``none`` takes a limit away.

    Raises: BadInput for a name that is no setting, or a value that does not fit it.
    """
    values: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or name not in _SETTABLE:
            hint = f"settings: {', '.join(_SETTABLE)}"
            raise BadInput(f"{item!r} sets nothing", where="--set", hint=hint)
        values[name] = _value(text)
    return replace(settings, **values)


def _value(text: str) -> Any:
    try:
        return json.loads({"none": "null"}.get(text.lower(), text.lower()))
    except ValueError:
        return text


#: What ``--set`` may change: what has no option of its own and is a plain number or switch.
_SETTABLE = (
    "timeout_s", "body_s", "drain_s", "max_body", "max_tokens", "default_tokens", "max_choices",
    "connections", "per_key_requests", "per_key_per_minute", "record_strict", "record_s",
    "pin_withhold", "trace_content", "world_sessions", "world_idle_s",
)  # fmt: skip
