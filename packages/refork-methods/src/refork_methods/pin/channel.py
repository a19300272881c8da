"""The operator's channel: the only way to change pinned rules.

A change is signed by HMAC-SHA-256 over its action and the rule's id, version, text and checker. A buffer
takes a change only with a right signature and the next version of that id, so that neither a text in the
conversation nor an old change played again can add, alter or lift a rule.

Source: ours; arXiv:2606.22528 leaves open who may change a pinned rule, and measures that an impersonated
operator defeats one in ten.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias, final

from refork.errors import BadInput, NotSigned
from refork.types import Json
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.constraint import Constraint

Action: TypeAlias = Literal["add", "replace", "remove"]
SHORTEST_KEY = 16  # bytes


@final
@dataclass(frozen=True, slots=True)
class SignedChange:
    """One change and its proof; ``mac`` is hexadecimal."""

    action: Action
    constraint: Constraint
    mac: str

    def to_json(self) -> Json:
        """Plain fields."""
        return {"action": self.action, "constraint": asdict(self.constraint), "mac": self.mac}

    @classmethod
    def from_json(cls, data: Json) -> SignedChange:
        """Inverse of :meth:`to_json`. Raises BadInput where a field is missing or unknown."""
        try:
            return cls(data["action"], Constraint(**data["constraint"]), str(data["mac"]))
        except (KeyError, TypeError) as error:
            raise BadInput(f"not a signed change: {error}", hint="write it with `refork pin sign`") from error


@final
class OperatorChannel:
    """Signs and verifies changes with a key that the model and its tools never see.

    Raises: BadInput for a key under 16 bytes.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < SHORTEST_KEY:
            raise BadInput(
                f"the operator's key has {len(key)} bytes; it needs at least {SHORTEST_KEY}",
                hint="make one with: python3 -c 'import secrets; print(secrets.token_hex(32))'",
            )
        self._key = key

    def sign(self, action: Action, constraint: Constraint) -> SignedChange:
        """A change that buffers will take. The constraint carries the version that it is to have."""
        return SignedChange(action, constraint, self._mac(action, constraint))

    def verify(self, change: SignedChange) -> None:
        """Raise NotSigned where the signature is not this key's for exactly this change."""
        # Not ==, whose time tells how many of the first digits are right.
        # As bytes: texts are compared only where both are ASCII.
        mine, given = self._mac(change.action, change.constraint), change.mac
        if not hmac.compare_digest(mine.encode(), given.encode("utf-8", "surrogatepass")):
            raise NotSigned(
                f"the signature of this change to rule {change.constraint.id!r} is not the operator's",
                hint="sign it with the operator's key: refork pin sign",
            )

    def _mac(self, action: Action, rule: Constraint) -> str:
        body = json.dumps(
            [action, rule.id, rule.version, rule.text, rule.kind, rule.tool, rule.checker], sort_keys=True
        )
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def next_version(buffer: PinnedBuffer, rule: str) -> int:
    """The version that the next change of a rule must carry."""
    return buffer.last.get(rule, 0) + 1


def signed_change(
    buffer: PinnedBuffer, action: Action, rule: str, text: str | None, channel: OperatorChannel
) -> SignedChange:
    """The next change of one rule, signed; kind, tool and checker stay those of the rule it changes.

    Raises:
        BadInput: the text is missing (or given to a removal), or the buffer would not take the change.
    """
    held = next((c for c in buffer.constraints if c.id == rule), None)
    if (text is None) != (action == "remove"):
        wanted = "no text" if action == "remove" else "a text"
        raise BadInput(f"{action} takes {wanted}", where=f"rule {rule!r}")
    version = next_version(buffer, rule)
    if held is None:
        # A removal of what is not pinned: made up here so that the check below refuses it in its own words.
        new = Constraint(rule, text or "removed", version=version)
    else:
        new = replace(held, text=text or held.text, version=version)
    change = channel.sign(action, new)
    changed(buffer, [change], channel)
    return change


def changed(buffer: PinnedBuffer, changes: Iterable[SignedChange], channel: OperatorChannel) -> PinnedBuffer:
    """The buffer after signed changes, in order.

    Raises:
        NotSigned: a signature is wrong, or a change is not the next version of its rule (a replay).
        BadInput: a rule is added that is there, or changed or removed that is not.
    """
    for change in changes:
        channel.verify(change)
        buffer = _one(buffer, change)
    return buffer


def _one(buffer: PinnedBuffer, change: SignedChange) -> PinnedBuffer:
    rule = change.constraint
    expected = next_version(buffer, rule.id)
    if rule.version != expected:
        raise NotSigned(
            f"this change is version {rule.version} of rule {rule.id!r}; the next is {expected}",
            hint="a change counts once and in order: sign the next version",
        )
    held = {c.id: c for c in buffer.constraints}
    if (change.action == "add") == (rule.id in held):
        state = "is pinned already" if rule.id in held else "is not pinned"
        raise BadInput(f"cannot {change.action} rule {rule.id!r}: it {state}")
    if change.action == "remove":
        held.pop(rule.id)
    else:
        held[rule.id] = rule
    return buffer.with_rules(tuple(held.values()), {**buffer.last, rule.id: rule.version})
