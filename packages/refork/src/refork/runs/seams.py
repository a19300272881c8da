"""Where a run is watched: a policy's calls, a world's steps, a store's transactions, a model's passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from refork.runs.attach import Attachment, ClassPattern, Named, Wrap
from refork.runs.sections import Kind, Section, SectionStack, recorder
from refork.types import Json

#: Rows of a profile.
FORWARD: Final = "model forward"
BACKWARD: Final = "model backward"
OPTIMIZER: Final = "optimizer"
SAMPLING: Final = "sampling"
SCORING: Final = "scoring"
SERVER: Final = "waiting: server"
WORKERS: Final = "waiting: workers"
TOKENS: Final = "tokenising"
WORLD: Final = "world"
STORE: Final = "store"
SANDBOX: Final = "sandbox"
LOADING: Final = "loading models"

#: What is known of a call before it runs, and what is learnt of it from each thing it gives.
Before: TypeAlias = Callable[[Any, Sequence[Any], Mapping[str, Any]], tuple[str, Json]]
Heard: TypeAlias = Callable[[Section, Any, Any], None]


def _known(
    keeper: SectionStack, before: Before | None, name: str, call: tuple[Any, Sequence[Any], Mapping[str, Any]]
) -> tuple[str, Json]:
    """A section's title and facts. What cannot be read off a call is left out: the call itself goes on."""
    try:
        return (name, {}) if before is None else before(*call)
    except Exception as error:
        keeper.refused.append(error)
        return name, {}


def _learn(keeper: SectionStack, heard: Heard, section: Section, what: tuple[Any, Any]) -> None:
    try:
        heard(section, *what)
    except Exception as error:
        keeper.refused.append(error)


def timed(
    name: str, kind: Kind = "time", *, before: Before | None = None, heard: Heard | None = None
) -> Wrap:
    """What makes a method a section; inside one of the same name it is part of that."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def watched(self: Any, *arguments: Any, **named: Any) -> Any:
            keeper = recorder()
            if keeper is None or (kind == "time" and keeper.inside(name)):
                return method(self, *arguments, **named)
            title, facts = _known(keeper, before, name, (self, arguments, named))
            with keeper.section(title, kind, **facts) as section:
                given = method(self, *arguments, **named)
                if heard is not None:
                    _learn(keeper, heard, section, (self, given))
                return given

        return watched

    return wrap


def drawn(before: Before, heard: Heard) -> Wrap:
    """What makes a method that gives things one by one a section; the time between them is not its own."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def watched(self: Any, *arguments: Any, **named: Any) -> Any:
            keeper = recorder()
            if keeper is None:
                return method(self, *arguments, **named)
            title, facts = _known(keeper, before, SAMPLING, (self, arguments, named))
            section = keeper.open(title, "model", **facts)
            if keeper.content:
                section.marks["requests"] = arguments[0] if arguments else named.get("requests", ())
            keeper.enter(section)
            try:
                source = method(self, *arguments, **named)
            except BaseException as error:
                keeper.leave(section)
                keeper.close(section, error)
                raise
            keeper.leave(section)
            return keeper.each(section, source, lambda item: _learn(keeper, heard, section, (self, item)))

        return watched

    return wrap


def noticed(tell: Callable[[Any, Mapping[str, Any]], None], order: Sequence[str]) -> Wrap:
    """What tells of a call that has succeeded: the object, and its arguments by name."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def watched(self: Any, *arguments: Any, **named: Any) -> Any:
            given = method(self, *arguments, **named)
            tell(self, dict(zip(order, arguments, strict=False)) | named)
            return given

        return watched

    return wrap


# Calls of a model


def _name_of(policy: Any) -> str:
    """What a policy is called, without asking a server or reading weights for it."""
    found = policy._endpoint.model if _remote(policy) else getattr(policy, "_name", None)
    return found if isinstance(found, str) and found else str(policy.card.name)


def _remote(policy: Any) -> bool:
    return type(policy).__module__ == "refork.policies.remote.policy"


def _sampling(policy: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, Json]:
    given = dict(zip(("requests", "settings"), arguments, strict=False)) | dict(named)
    requests, settings = given["requests"], given["settings"]
    facts = _asked(policy, settings) | {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.usage.input_tokens": sum(len(request.tokens) for request in requests),
        "gen_ai.usage.output_tokens": 0,
        "refork.requests": len(requests),
    }
    if len({request.noise.seed for request in requests}) == 1:
        facts["gen_ai.request.seed"] = int(requests[0].noise.seed)
    return SERVER if _remote(policy) else SAMPLING, facts


def _asked(policy: Any, settings: Any) -> Json:
    facts: Json = {
        "gen_ai.provider.name": "refork",
        "gen_ai.request.model": _name_of(policy),
        "gen_ai.request.temperature": float(settings.temperature),
        "gen_ai.request.max_tokens": int(settings.max_tokens),
    }
    if settings.top_p is not None:
        facts["gen_ai.request.top_p"] = float(settings.top_p)
    if settings.top_k is not None:
        facts["gen_ai.request.top_k"] = float(settings.top_k)
    for name in ("presence_penalty", "frequency_penalty"):
        if (value := getattr(settings, name)) is not None:
            facts[f"gen_ai.request.{name}"] = float(value)
    return facts


def _note_output(section: Section, policy: Any, given: Any) -> None:
    said = given[0] if isinstance(given, tuple) else given  # with its hidden states
    out = len(said.tokens) or said.cost.tokens_out or 0
    section.add("gen_ai.usage.output_tokens", out)
    if not len(said.tokens) and said.cost.tokens_in is not None:  # a chat: only the server counts
        section.add("gen_ai.usage.input_tokens", said.cost.tokens_in)
    finishes = section.marks.setdefault("finish", {})
    finishes[said.finish] = finishes.get(said.finish, 0) + 1
    section.attributes["gen_ai.response.finish_reasons"] = sorted(finishes)
    if said.error is not None:
        section.add("refork.failed", 1)
    if "requests" in section.marks:
        asked = section.marks["requests"][said.index].messages or ()
        section.marks.setdefault("texts", []).append((asked, said.text, said.finish))


def _scoring(policy: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, Json]:
    sequences = arguments[0] if arguments else next(iter(named.values()))
    facts = {
        "gen_ai.provider.name": "refork",
        "gen_ai.operation.name": "score",
        "gen_ai.request.model": _name_of(policy),
        "gen_ai.usage.input_tokens": sum(len(sequence) for sequence in sequences),
        "refork.requests": len(sequences),
    }
    return SERVER if _remote(policy) else SCORING, facts


def _called(operation: str) -> Before:
    def before(asker: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, Json]:
        endpoint = asker.endpoint
        return "server call", {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": str(getattr(endpoint, "model", "")),
            "server.address": str(endpoint.server),
        }

    return before


def _answered(section: Section, asker: Any, turn: Any) -> None:
    """The server's own counts, prefix cache included."""
    for body in turn.bodies:
        usage = body.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        for name, count in (
            ("gen_ai.usage.input_tokens", usage.get("prompt_tokens")),
            ("gen_ai.usage.output_tokens", usage.get("completion_tokens")),
            ("gen_ai.usage.cache_read.input_tokens", details.get("cached_tokens")),
        ):
            if isinstance(count, int):
                section.add(name, count)
                if name.startswith("gen_ai.usage.cache_read") and (call := _model_call(section)):
                    call.add(name, count)


def _model_call(section: Section | None) -> Section | None:
    return None if section is None or section.parent is None else section.parent.up("model")


def _from_cache(section: Section, cache: Any, found: Any) -> None:
    call = section.up("model")
    if call is not None:
        call.add("gen_ai.usage.cache_read.input_tokens", int(found))


# Steps of a world

#: Worlds by the class of their episodes: an episode does not know whose it is.
_WORLDS: dict[type, str] = {}


def _begun(section: Section, world: Any, episode: Any) -> None:
    _WORLDS[type(episode)] = str(world.name)


def _step(episode: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, Json]:
    who = _WORLDS.get(type(episode), type(episode).__name__)
    return WORLD, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": who}


def _note_observation(section: Section, episode: Any, seen: Any) -> None:
    section.attributes["refork.world.done"] = bool(seen.done)


# The lists

_POLICY: Final = ClassPattern(
    frozenset({"card", "encode", "decode", "render", "sample", "logprobs"}),
    {
        "sample": drawn(_sampling, _note_output),
        "sample_captured": drawn(_sampling, _note_output),
        "logprobs": timed(SCORING, "model", before=_scoring),
        "next_logprobs": timed(SCORING, "model", before=_scoring),
        "hidden_states": timed(SCORING, "model", before=_scoring),
        "encode": timed(TOKENS),
        "decode": timed(TOKENS),
        "render": timed(TOKENS),
    },
)
_EPISODE: Final = ClassPattern(
    frozenset({"first", "step", "snapshot", "reseed", "close"}),
    {"step": timed(WORLD, "world", before=_step, heard=_note_observation), "snapshot": timed(WORLD)},
)
_WORLD: Final = ClassPattern(
    frozenset({"tasks", "start", "restore", "max_turns", "deterministic"}),
    {
        "tasks": timed(WORLD),
        "start": timed(WORLD, heard=_begun),
        "restore": timed(WORLD, heard=_begun),
    },
)
_DATABASE: Final[Mapping[str, Wrap]] = {
    "commit": timed("store", "store"),
    "rows": timed(STORE),
    "one": timed(STORE),
    "scalar": timed(STORE),
}
_CODEC: Final = ("encode", "decode", "pieces", "raw", "render", "template_text")

NAMED: Final[Named] = {
    "refork.policies.chat": {"Codec": {name: timed(TOKENS) for name in _CODEC}},
    "refork.decoding.cache": {"BlockCache": {"load": timed("prefix cache", heard=_from_cache)}},
    "refork.policies.remote.draw": {
        "Asker": {
            "tokens": timed("server call", "model", before=_called("text_completion"), heard=_answered),
            "chat": timed("server call", "model", before=_called("chat"), heard=_answered),
        }
    },
    "refork.tree.sqlite": {"SQLiteDatabase": _DATABASE},
    "refork.tree.postgres": {"PostgresDatabase": _DATABASE},
    "refork.forking.backend.processes": {"ProcessPool": {"wait": timed(WORKERS)}},
    "refork.forking.backend.ray_pool": {"RayPool": {"wait": timed(WORKERS)}},
    "refork.sandbox.runner": {"Sandbox": {"run": timed(SANDBOX), "load": timed(SANDBOX)}},
    "refork.sandbox.shell": {"Shell": {"run": timed(SANDBOX)}},
    # Every model of transformers, whoever runs it; PyTorch's module hooks would be called for every layer.
    "transformers.modeling_utils": {
        "PreTrainedModel": {"__call__": timed(FORWARD), "from_pretrained": timed(LOADING)}
    },
    "refork.policies.local": {"LocalPolicy": {"load": timed(LOADING)}},
    "torch": {"Tensor": {"backward": timed(BACKWARD)}},
    "torch.optim.adam": {"Adam": {"step": timed(OPTIMIZER)}},
    "torch.optim.sgd": {"SGD": {"step": timed(OPTIMIZER)}},
}


def watch_all() -> Attachment:
    """Sections at every seam of what is loaded and of what will be; detach it at the end."""
    made = Attachment(NAMED, (_POLICY, _EPISODE, _WORLD), timing=True)
    made.attach()
    return made
