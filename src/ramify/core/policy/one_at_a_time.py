"""One thread at a time for policies that compute in this process: a model and its caches are one."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakKeyDictionary

from ramify.core.policy.base import Policy

_locks: WeakKeyDictionary[Policy, threading.RLock] = WeakKeyDictionary()
_guard = threading.Lock()


def one_at_a_time(policy: Policy) -> AbstractContextManager[object]:
    """What to hold while asking a policy from one of several threads; a remote one is asked at once."""
    if policy.card.kind == "remote":
        return nullcontext()
    with _guard:
        return _locks.setdefault(policy, threading.RLock())
