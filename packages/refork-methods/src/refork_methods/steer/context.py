"""Steering as a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from refork.decoding.states import Edit
from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.policies.whitebox import white_box
from refork_methods.steer.steers import Steer


@contextmanager
def steering(policy: LocalPolicy, *steers: Steer | Edit) -> Iterator[LocalPolicy]:
    """Inside, the policy steered; its cache of prefixes is freed at the end.

    What it gives is a policy like any other: draw from it, fork with ``SwapPolicy``, steer it again. The
    policy that was given is left as it was, so both can be used side by side.

    Raises:
        BadInput: nothing to steer by, or a layer or width that the model does not have.
        CannotDo: the policy does not show hidden states.
    """
    white_box(policy)
    if not steers:
        raise BadInput("nothing to steer by", hint="give AddVector, ClampDirection or AblateDirection")
    view = policy.edited(*(item if isinstance(item, Edit) else item.edit() for item in steers))
    try:
        yield view
    finally:
        view.decoder.cache.clear()
