"""Token ids of recorded episodes, as one policy's template renders them: what a fork by that policy needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from refork.errors import CannotDo
from refork.policies.base import Policy
from refork.tree.node import Draft
from refork.types import Message, token_array


def with_tokens(policy: Policy, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts of one walk, its task first, with token ids for all that a policy says or is shown.

    Raises:
        CannotDo: the template rewrites what came before, so that turns have no token ids of their own.
    """
    history: list[Message] = []
    context = token_array([])
    found = []
    for draft in drafts:
        told = list(draft.extra.get("messages", [])) or ([draft.message] if draft.message else [])
        if not told:
            found.append(draft)
            continue
        if draft.kind == "action":
            tokens = policy.encode(draft.text)
        else:
            rendered = policy.render(history, context, told)
            if rendered.rewrites:
                raise CannotDo(
                    "this template rewrites what came before, so turns have no token ids of their own",
                    where=policy.card.name,
                    hint="record without --policy, and fork with a chat policy at messages",
                )
            tokens = rendered.tokens
        history += told
        context = np.concatenate([context, tokens]).astype(np.int32)
        found.append(replace(draft, tokens=tokens))
    return found
