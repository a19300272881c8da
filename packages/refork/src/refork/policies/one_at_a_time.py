"""One thread at a time for policies that compute in this process: a model and its caches are one."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol
from weakref import WeakKeyDictionary

from refork.policies.base import PolicyCard


class Carded(Protocol):
    """What says on a card what it is: policies, and models that can be looked into."""

    @property
    def card(self) -> PolicyCard:
        """Its card."""
        ...


# Weak, so that a lock keeps no model in memory.
_locks: WeakKeyDictionary[Carded, threading.RLock] = WeakKeyDictionary()
_guard = threading.Lock()


def one_at_a_time(policy: Carded) -> AbstractContextManager[object]:
    """What to hold while asking a policy from one of several threads; a remote one is asked at once."""
    if policy.card.kind == "remote":
        return nullcontext()
    with _guard:
        return _locks.setdefault(policy, threading.RLock())
