"""The drafters that can propose for a batch of branches: all kinds there are."""

from __future__ import annotations

from typing import Any, TypeAlias

from refork.errors import BadInput
from refork_methods.speculate.eagle import EagleDraft
from refork_methods.speculate.model import DraftModel

Proposer: TypeAlias = DraftModel | EagleDraft


def as_proposer(draft: Any) -> Proposer:
    """The drafter, if it is one of these; raises BadInput where it is not."""
    if isinstance(draft, DraftModel | EagleDraft):
        return draft
    raise BadInput(f"a drafter is needed, not {type(draft).__name__}")
