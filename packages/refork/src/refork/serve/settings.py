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

    Raises:
        BadInput: a limit, name or origin that is none, or an address beyond this machine without a key.
    """

    #: Address to listen on; beyond this machine only with a key.
    host: str = "127.0.0.1"
    #: Port to listen on; 0 takes a free one.
    port: int = 8000
    #: What clients may send as API key; none: nobody needs one.
    keys: frozenset[str] = field(default=frozenset(), repr=False)
    #: Names that requests may name the server by, beside this machine's and the address listened on.
    hosts: frozenset[str] = frozenset()
    #: Pages that may ask from elsewhere, as browsers write them.
    origins: frozenset[str] = frozenset()
    #: Questions that a chat model is asked at the same time.
    lanes: int = 1
    #: Answers that a local model draws at the same time.
    width: int = 16
    #: Choices that may wait for a lane or a row of one model; more are refused (429).
    waiting: int = 256
    #: Seconds of a whole answer, waiting included.
    timeout_s: float | None = 600.0
    #: Seconds of a request's arrival.
    body_s: float = 30.0
    #: Seconds that running answers get when the server stops.
    drain_s: float = 30.0
    #: Bytes of a request.
    max_body: int = 16 << 20
    #: Tokens of one choice.
    max_tokens: int | None = None
    #: Tokens of a choice whose request names none.
    default_tokens: int = 256
    #: Choices of one request.
    max_choices: int = 64
    #: Connections that are open at the same time.
    connections: int = 1024
    #: The tree that every answer is written to.
    record: Path | None = None
    #: An answer that cannot be recorded is not given.
    record_strict: bool = False
    #: Seconds that an answer waits for its record.
    record_s: float = 30.0
    #: A policy file whose rules stand in every chat.
    pin: Path | None = None
    #: Tool calls that break a rule are taken out of the answer.
    pin_withhold: bool = True
    #: Where spans go.
    otlp: str | None = None
    #: Texts are in the spans, too.
    trace_content: bool = False
    #: Episodes of simulated worlds that may be open.
    world_sessions: int = 1024
    #: Seconds after which an episode that nobody acts in is forgotten.
    world_idle_s: float = 1800.0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name == "max_tokens":
                continue
            # True is an int to Python: without the first test `lanes=True` would pass as one lane.
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise _refuse(name, value, f"a whole number, {least} or more")
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


#: Settings that count something, with the least that each may be.
_LEAST = {"waiting": 0, "port": 0} | dict.fromkeys(
    ("lanes", "width", "max_body", "max_tokens", "default_tokens", "max_choices", "connections",
     "world_sessions"), 1,
)  # fmt: skip


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
        # Lower case first: True and None, as Python spells them, are no JSON.
        return json.loads({"none": "null"}.get(text.lower(), text.lower()))
    except ValueError:
        return text


#: What ``--set`` may change: what has no option of its own and is a plain number or switch.
_SETTABLE = (
    "timeout_s", "body_s", "drain_s", "max_body", "max_tokens", "default_tokens", "max_choices",
    "connections", "record_strict", "record_s", "pin_withhold", "trace_content", "world_sessions",
    "world_idle_s",
)  # fmt: skip
