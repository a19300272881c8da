"""deepagents: sub-agents that hold the pinned rules.

``create_deep_agent`` gives its ``middleware`` to the main agent alone. The sub-agents, among them one for
general purposes that it adds by itself, get their own messages, their own compaction, and none of it
(deepagents 0.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from refork.errors import CannotDo, MissingExtra
from refork.types import Json
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.frameworks.langchain import PinningMiddleware

try:
    from deepagents.middleware.subagents import GENERAL_PURPOSE_SUBAGENT
except ImportError as error:
    raise MissingExtra("deepagents", "deepagents") from error

_NO_MORE: Mapping[str, Any] = MappingProxyType({})


def pinned_subagents(
    buffer: PinnedBuffer,
    subagents: Iterable[Mapping[str, Any]] = (),
    general: Mapping[str, Any] | None = _NO_MORE,
) -> list[Json]:
    """The sub-agents of a deep agent, each with the rules in every model input: ``subagents=`` of the agent.

    ``general``: more fields of the one for general purposes, such as ``skills``, which a stated one does not
    inherit; None leaves it to deepagents, for a harness profile that has none. An agent that is compiled
    already (``runnable``) stays as it is, and the main agent's PinningMiddleware stops it if it is not
    pinned.

    Raises:
        CannotDo: an agent on another server, whose messages nothing here can see.
    """
    given = [dict(spec) for spec in subagents]
    stated = any(spec.get("name") == GENERAL_PURPOSE_SUBAGENT["name"] for spec in given)
    if general is not None and not stated:
        given.insert(0, {**GENERAL_PURPOSE_SUBAGENT, **general})
    for spec in given:
        if "graph_id" in spec:
            raise CannotDo(
                f"the sub-agent {spec.get('name')!r} runs on another server, out of the rules' reach",
                hint="pin them there, in that agent's own middleware, and add its spec to this list; the "
                "main agent then needs PinningMiddleware(buffer, subagents='ignore')",
            )
        if "runnable" not in spec:
            others = [one for one in spec.get("middleware") or () if not isinstance(one, PinningMiddleware)]
            spec["middleware"] = [*others, PinningMiddleware(buffer)]
    return given
