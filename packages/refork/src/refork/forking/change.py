"""Changes: the one thing that differs between two arms.

A change edits a :class:`Plan`, which starts as "run on from the point as it was". Every change is
serialised with the arm it made, and can say what it changed in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, Self, get_type_hints, runtime_checkable

import numpy as np

from refork.errors import BadChange, BadInput
from refork.policies.base import Policy, Sampling
from refork.sampling.grammar import Grammar
from refork.tree.node import Point, Trajectory
from refork.types import IntArray, Json, Message, token_array
from refork.worlds.base import World


@dataclass(frozen=True, slots=True)
class Plan:
    """What an arm will run: the walk up to the point, and everything that may be changed.

    ``drop``: tokens cut from the end of the trajectory. ``insert``: token ids put in their place.
    ``messages``: an edited conversation, None while the recorded one stands; ``account``: what is recorded
    of that edit on the rewrite node (a ``reason``, and whatever its maker can say). A change that acts
    inside the network replaces ``policy`` by one that acts so.
    """

    point: Point
    trajectory: Trajectory
    policy: Policy
    settings: Sampling
    world: World | None = None
    drop: int = 0
    insert: IntArray = field(default_factory=lambda: token_array([]))
    messages: tuple[Message, ...] | None = None
    account: Json | None = None
    swapped: bool = False

    @property
    def where(self) -> str:
        """The point, for error messages."""
        return f"node {self.point.node.id[:12]}, token {self.point.keep}"


@dataclass(frozen=True, slots=True)
class Diff:
    """A change in words: what stood there, what stands there now."""

    what: str
    before: str
    after: str


@runtime_checkable
class Change(Protocol):
    """One edit of a plan. ``kind`` names it in storage; ``touches`` names what it claims for itself."""

    kind: ClassVar[str]

    def touches(self) -> frozenset[str]:
        """Parts of a plan that no other change may touch as well; ``a:b`` is a part of ``a``."""
        ...

    def apply(self, plan: Plan) -> Plan:
        """The plan with this edit; raises BadChange where it cannot be made."""
        ...

    def diff(self, plan: Plan) -> Diff:
        """What this edit does to ``plan``."""
        ...

    def to_json(self) -> Json:
        """``{"kind": ..., ...}``."""
        ...


@dataclass(frozen=True, slots=True)
class Openers:
    """What a change may need to be made: how policies and worlds are opened by name."""

    policy: Callable[[str], Policy]
    world: Callable[[str], World]


@runtime_checkable
class Kind(Protocol):
    """What a name of ``refork.changes`` may stand for, beside a callable of the argument that makes a change.

    ``parse``'s docstring begins with how it is written, in double backquotes, and what it does.
    """

    def parse(self, argument: str, opening: Openers) -> Change:
        """The change that ``name:argument`` describes; raises BadChange where it describes none."""
        ...

    def from_json(self, data: Json, opening: Openers) -> Change:
        """A stored change of this kind again."""
        ...


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadChange(f"{text!r} is not a number") from None


def _numbered(argument: str, form: str) -> tuple[int, str]:
    number, colon, text = argument.partition(":")
    if not colon:
        raise BadChange(f"write {form}")
    return _number(number), text


def _value(text: str) -> Any:
    """A value as it is written: none, true or false, a number, other JSON, else the text itself."""
    known = {"none": None, "true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    with suppress(ValueError):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    with suppress(ValueError):
        return json.loads(text)
    return text


def _tail(plan: Plan, tokens: int) -> IntArray:
    if not 1 <= tokens <= plan.point.keep:
        raise BadChange(
            f"cannot take {tokens} token(s) away: {plan.point.keep} stand before the point on this node",
            where=plan.where,
            hint="choose a later token, or fewer tokens",
        )
    recorded = plan.point.node.tokens
    if recorded is None:
        raise BadChange("this node records no token ids", where=plan.where)
    return token_array(recorded[plan.point.keep - tokens : plan.point.keep])


def _ids(plan: Plan, tokens: Sequence[int] | None, text: str | None) -> IntArray:
    if (tokens is None) == (text is None):
        raise BadChange("give either token ids or text, not both or neither", where=plan.where)
    ids = plan.policy.encode(text) if text is not None else token_array(tokens)
    size = plan.policy.card.vocabulary
    outside = [int(i) for i in ids if i < 0 or (size is not None and i >= size)]
    if outside:
        raise BadChange(f"token id {outside[0]} is outside the vocabulary of {size}", where=plan.where)
    if len(ids) == 0:
        raise BadChange("nothing to put in: the text gives no tokens", where=plan.where)
    return ids


class _Edit:
    """A change whose fields are its record, and which claims the same part of a plan whatever they are."""

    __slots__ = ()
    kind: ClassVar[str]
    claims: ClassVar[str] = ""

    def touches(self) -> frozenset[str]:
        return frozenset({self.claims})

    def to_json(self) -> Json:
        told: Json = {name: getattr(self, name) for name in _names(self)}
        # The content comes last, as in the records that trees hold.
        ids, text = told.pop("ids", None), told.pop("text", None)
        content = {} if "text" not in _names(self) else {"text": text} if ids is None else {"ids": list(ids)}
        return {"kind": self.kind} | told | content

    @classmethod
    def from_json(cls, data: Json, opening: Openers) -> Self:
        given = {name: data[name] for name in _names(cls) if name not in ("ids", "text")}
        content = {"ids": tuple(data["ids"])} if "ids" in data else {"text": data.get("text")}
        return cls(**given | (content if "text" in _names(cls) else {}))


def _names(kind: Any) -> list[str]:
    return [one.name for one in fields(kind)]


@dataclass(frozen=True, slots=True)
class Remove(_Edit):
    """Take the last ``tokens`` tokens before the point away."""

    tokens: int = 1
    kind: ClassVar[str] = "remove"
    claims: ClassVar[str] = "tail"

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        _tail(plan, self.tokens)
        return replace(plan, drop=self.tokens)

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        before = plan.policy.decode(_tail(plan, self.tokens))
        return Diff(f"remove {self.tokens} token(s)", before, "")

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> Remove:
        """``remove:N``: take the last N tokens before the point away."""
        return cls(_number(argument))


@dataclass(frozen=True, slots=True)
class Insert(_Edit):
    """Put token ids, or text, at the point."""

    ids: tuple[int, ...] | None = None
    text: str | None = None
    kind: ClassVar[str] = "insert"
    claims: ClassVar[str] = "tail"

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        return replace(plan, insert=_ids(plan, self.ids, self.text))

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        return Diff("insert", "", plan.policy.decode(_ids(plan, self.ids, self.text)))

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> Insert:
        """``insert:TEXT``: put TEXT at the point."""
        return cls(text=argument)


@dataclass(frozen=True, slots=True)
class Replace(_Edit):
    """Put token ids, or text, in the place of the last ``tokens`` tokens before the point."""

    tokens: int = 1
    ids: tuple[int, ...] | None = None
    text: str | None = None
    kind: ClassVar[str] = "replace"
    claims: ClassVar[str] = "tail"

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        _tail(plan, self.tokens)
        return replace(plan, drop=self.tokens, insert=_ids(plan, self.ids, self.text))

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        decode = plan.policy.decode
        after = decode(_ids(plan, self.ids, self.text))
        return Diff(f"replace {self.tokens} token(s)", decode(_tail(plan, self.tokens)), after)

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> Replace:
        """``replace:N:TEXT``: put TEXT in the place of the last N tokens."""
        tokens, text = _numbered(argument, "replace:N:TEXT")
        return cls(tokens, text=text)


@dataclass(frozen=True, slots=True)
class Ban(_Edit):
    """Forbid tokens (ids, or the tokens of a text): as the first token after the point, or always."""

    ids: tuple[int, ...] | None = None
    text: str | None = None
    always: bool = False
    kind: ClassVar[str] = "ban"

    def touches(self) -> frozenset[str]:  # noqa: D102
        # Bans of different tokens go together, so what is banned is part of the claim.
        what = f"{self.ids}{self.text}".replace(":", ";")
        setting = "banned" if self.always else "banned_first"
        return frozenset({f"ban:{what}", f"settings:{setting}:{what}"})

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        ids = tuple(int(i) for i in _ids(plan, self.ids, self.text))
        if set(ids) & set(plan.settings.forced):
            raise BadChange("a token is both forced and banned", where=plan.where)
        settings = plan.settings
        if self.always:
            return replace(plan, settings=settings.but(banned=settings.banned + ids))
        return replace(plan, settings=settings.but(banned_first=settings.banned_first + ids))

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        word = "always" if self.always else "as the next token"
        return Diff(f"ban {word}", plan.policy.decode(_ids(plan, self.ids, self.text)), "")

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> Ban:
        """``ban:TEXT``: TEXT's tokens may not come next."""
        return cls(text=argument)


@dataclass(frozen=True, slots=True)
class Force(_Edit):
    """Make the policy say tokens (ids or text) first; their log-probs are the policy's own."""

    ids: tuple[int, ...] | None = None
    text: str | None = None
    kind: ClassVar[str] = "force"
    claims: ClassVar[str] = "settings:forced"

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        ids = tuple(int(i) for i in _ids(plan, self.ids, self.text))
        if set(ids) & {*plan.settings.banned, *plan.settings.banned_first}:
            raise BadChange("a token is both forced and banned", where=plan.where)
        return replace(plan, settings=plan.settings.but(forced=ids))

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        return Diff("force", "", plan.policy.decode(_ids(plan, self.ids, self.text)))

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> Force:
        """``force:TEXT``: make the policy say TEXT first."""
        return cls(text=argument)


@dataclass(frozen=True, slots=True)
class EditMessage(_Edit):
    """Replace the content of one message of the conversation (counted from 0, the task's first)."""

    index: int
    content: str
    kind: ClassVar[str] = "message"

    def touches(self) -> frozenset[str]:  # noqa: D102
        return frozenset({f"message:{self.index}", "tail"})

    def _messages(self, plan: Plan) -> tuple[Message, ...]:
        from refork.forking.context import conversation

        messages = plan.messages or conversation(plan.trajectory).messages
        if not 0 <= self.index < len(messages):
            raise BadChange(
                f"there is no message {self.index}; the conversation has {len(messages)}",
                where=plan.where,
                hint="count from 0, the task's first message",
            )
        return messages

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        messages = list(self._messages(plan))
        messages[self.index] = messages[self.index] | {"content": self.content}
        return replace(plan, messages=tuple(messages))

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        before = str(self._messages(plan)[self.index].get("content", ""))
        return Diff(f"edit message {self.index}", before, self.content)

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> EditMessage:
        """``message:I:TEXT``: replace the content of message I, counted from 0."""
        return cls(*_numbered(argument, "message:I:TEXT"))


@dataclass(frozen=True, slots=True)
class Set:
    """Sample under other settings, e.g. ``Set(temperature=0.5)``."""

    values: Json
    kind: ClassVar[str] = "set"

    def __init__(self, values: Json | None = None, **settings: object) -> None:
        object.__setattr__(self, "values", dict(values or {}) | settings)

    def touches(self) -> frozenset[str]:  # noqa: D102
        return frozenset(f"settings:{name}" for name in self.values)

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        merged = plan.settings.to_json() | self.values
        return replace(plan, settings=Sampling.from_json(merged))

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        before = ", ".join(f"{k}={getattr(plan.settings, k, '?')}" for k in self.values)
        return Diff("settings", before, ", ".join(f"{k}={v}" for k, v in self.values.items()))

    def to_json(self) -> Json:  # noqa: D102
        return {"kind": self.kind, "values": self.values}

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> Set:
        """``set:NAME=VALUE``: sample under another setting (temperature, top_p, ...)."""
        from pydantic import TypeAdapter

        name, sign, value = argument.partition("=")
        if not sign:
            raise BadChange("write set:NAME=VALUE")
        kinds = {one.name: one.type for one in fields(Sampling)}
        if name not in kinds:
            raise BadChange(f"{name!r} is no sampling setting", hint=f"known: {sorted(kinds)}")
        parsed = _value(value)
        try:
            if name == "grammar" and parsed is not None:
                Grammar.from_json(parsed)
            else:
                # As JSON, in which lists stand for tuples; what is recorded stays as it was written.
                TypeAdapter(get_type_hints(Sampling)[name]).validate_json(json.dumps(parsed), strict=True)
        except (ValueError, BadInput) as error:
            kind = str(kinds[name])
            listed = kind.startswith("tuple") and not isinstance(parsed, list)
            one = value if "str" in kind else parsed
            hint = f"set:{name}={json.dumps([one])}" if listed else f"its values: {kind}"
            raise BadChange(f"{value!r} is no value of {name}", hint=hint) from error
        return cls({name: parsed})

    @classmethod
    def from_json(cls, data: Json, opening: Openers) -> Set:  # noqa: D102
        return cls(data["values"])


@dataclass(frozen=True, slots=True)
class SwapPolicy(_Edit):
    """Let another policy continue. A different tokenizer re-tokenises the context (a rewrite node)."""

    policy: Policy
    kind: ClassVar[str] = "policy"
    claims: ClassVar[str] = "policy"

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        return replace(plan, policy=self.policy, swapped=True)

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        return Diff("policy", plan.policy.card.name, self.policy.card.name)

    def to_json(self) -> Json:  # noqa: D102
        card = self.policy.card
        return {"kind": self.kind, "name": card.name, "weights": card.weights, "tokenizer": card.tokenizer}

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> SwapPolicy:
        """``policy:SPEC``: let another policy continue."""
        return cls(opening.policy(argument))

    @classmethod
    def from_json(cls, data: Json, opening: Openers) -> SwapPolicy:  # noqa: D102
        return cls(opening.policy(data["name"]))


@dataclass(frozen=True, slots=True)
class SwapWorld(_Edit):
    """Continue in another world (or variant of it) that accepts the same task and history."""

    world: World
    kind: ClassVar[str] = "world"
    claims: ClassVar[str] = "world"

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        return replace(plan, world=self.world)

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        return Diff("world", plan.world.name if plan.world else "none", self.world.name)

    def to_json(self) -> Json:  # noqa: D102
        return {"kind": self.kind, "name": self.world.name, "version": self.world.version}

    @classmethod
    def parse(cls, argument: str, opening: Openers) -> SwapWorld:
        """``world:SPEC``: continue in another world."""
        return cls(opening.world(argument))

    @classmethod
    def from_json(cls, data: Json, opening: Openers) -> SwapWorld:  # noqa: D102
        return cls(opening.world(data["name"]))


@dataclass(frozen=True, slots=True)
class Compose:
    """Several changes at once; two that touch the same thing are refused."""

    changes: tuple[Change, ...]
    kind: ClassVar[str] = "compose"

    def __init__(self, *changes: Change) -> None:
        seen: dict[str, str] = {}
        for change in changes:
            for part in sorted(change.touches()):
                other = next((kind for one, kind in seen.items() if _meet(one, part)), None)
                if other is not None:
                    raise BadChange(
                        f"'{other}' and '{change.kind}' both change {part.split(':')[0]}",
                        hint="use one change that does both, such as replace",
                    )
            seen |= dict.fromkeys(change.touches(), change.kind)
        object.__setattr__(self, "changes", tuple(changes))

    def touches(self) -> frozenset[str]:  # noqa: D102
        return frozenset().union(*(c.touches() for c in self.changes))

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        # The policy comes first: its tokenizer is the one that reads every text.
        for change in sorted(self.changes, key=lambda c: c.kind != "policy"):
            plan = change.apply(plan)
        return plan

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        diffs = [change.diff(plan) for change in self.changes]
        return Diff(
            " + ".join(d.what for d in diffs),
            " | ".join(d.before for d in diffs),
            " | ".join(d.after for d in diffs),
        )

    def to_json(self) -> Json:  # noqa: D102
        return {"kind": self.kind, "changes": [c.to_json() for c in self.changes]}


def _meet(one: str, other: str) -> bool:
    """Whether two claims are of one part: the same, or one of them of a part of the other."""
    return f"{one}:".startswith(f"{other}:") or f"{other}:".startswith(f"{one}:")


def ban_always(argument: str) -> Ban:
    """``ban-always:TEXT``: TEXT's tokens may never come."""
    return Ban(text=argument, always=True)


def join(ids: IntArray, more: IntArray) -> IntArray:
    """Two token arrays, one after the other."""
    return token_array(np.concatenate([ids, more]))
