"""Token ids of recorded episodes, as one policy's template renders them: what a fork by that policy needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from refork.errors import CannotDo
from refork.policies.base import Policy
from refork.tree.node import NewNode
from refork.types import Message, token_array


def with_tokens(policy: Policy, new_nodes: Sequence[NewNode]) -> list[NewNode]:
    """The drafts of one trajectory, its task first, with token ids for all that a policy says or is shown.

    Raises:
        CannotDo: the template rewrites what came before, so that turns have no token ids of their own.
    """
    history: list[Message] = []
    context = token_array([])
    found = []
    for new_node in new_nodes:
        told = list(new_node.extra.get("messages", [])) or ([new_node.message] if new_node.message else [])
        if not told:
            found.append(new_node)
            continue
        if new_node.kind == "action":
            # Without its end of turn, which the rendering of the next message writes.
            tokens = policy.encode(new_node.text)
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
        found.append(replace(new_node, tokens=tokens))
    return found
