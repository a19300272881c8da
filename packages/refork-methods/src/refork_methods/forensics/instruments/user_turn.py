"""User-turn sampling: the model writes the next message of the user; does that user object?

A model that expects an objection may know that something is wrong. Or it only completes a text: the reading
is ambiguous, and the result says so.

Source: arXiv:2606.26071, appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.forking.change import Insert, join
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import Point, Trajectory
from refork.types import IntArray, Message, token_array
from refork_methods.forensics.instruments.reading import Reader
from refork_methods.forensics.instruments.replies import (
    Replies,
    collect,
    last_said,
    said_so_far,
    subject_of,
)

#: Two contents that share no beginning: what their renderings share is the template's own header.
_PROBES = ("Apple", "8 = zebra")


def user_header(policy: Policy, trajectory: Trajectory) -> IntArray:
    """Token ids that open a user's turn behind a walk: what renderings of two messages share, maybe none.

    Raises: CannotDo for a policy that takes messages only, or a template that rewrites the context.
    """
    if not policy.card.can("tokens"):
        raise CannotDo(
            f"{policy.card.name!r} takes chat messages only: it cannot be made to write the user's turn",
            hint="use a policy that takes token ids (hf:DIR, or a server with a completions endpoint)",
        )
    before = said_so_far(trajectory)
    found: list[IntArray] = []
    for content in _PROBES:
        message: Message = {"role": "user", "content": content}
        rendered = policy.render(list(before), trajectory.tokens, [message])
        if rendered.rewrites:
            raise CannotDo(
                "the chat template rewrites the context, so the user's turn has no place behind it"
            )
        found.append(rendered.tokens)
    size = min(map(len, found))
    same = found[0][:size] == found[1][:size]
    return found[0][: size if same.all() else int(np.argmin(same))]


def user_turn_sample(
    ends: Sequence[Point],
    policy: Policy,
    reader: Reader,
    draws: int = 1,
    *,
    opener: str = "",
    settings: Sampling | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Replies:
    """Next user messages that the policy itself writes behind rollouts, read (does this user object?).

    ``opener`` begins the message, for templates that mark no user's turn ("User:").

    Raises:
        BadInput: the template has no header and no opener is given, or there is no rollout.
        CannotDo: the policy takes chat messages only.
    """
    if not ends:
        raise BadInput("there is no rollout to ask about")
    groups: dict[tuple[int, ...], list[Point]] = {}
    order: list[tuple[tuple[int, ...], int]] = []
    for end in ends:
        at = last_said(end)
        assert at.tree is not None
        header = user_header(policy, at.tree.path(at))
        ids = tuple(int(t) for t in join(header, policy.encode(opener) if opener else token_array([])))
        if not ids:
            raise BadInput(
                "this policy's template puts nothing before a user's message",
                where=policy.card.name,
                hint='give an opener, such as "User:"',
            )
        order.append((ids, len(groups.setdefault(ids, []))))
        groups[ids].append(at)
    # A user's message is no part of the policy's turn before it, so it has a whole turn's room of its own.
    room = (settings or Sampling()).max_tokens
    done = {
        ids: collect(
            points, policy, draws, reader, change=Insert(ids=ids), settings=settings, room=room, seed=seed,
            stage="user turns", progress=progress,
        )
        for ids, points in groups.items()
    }  # fmt: skip
    replies = tuple(
        replace(reply, rollout=number)
        for number, (ids, place) in enumerate(order)
        for reply in done[ids][1]
        if reply.rollout == place
    )
    warnings = tuple(dict.fromkeys(w for _, _, ws in done.values() for w in ws))
    return Replies(
        "user-turn sampling", opener, reader.labels, replies, reader.producer.id, subject_of(policy),
        "which user the model expects; it may be completing a text, not voicing a belief",
        ("text completion",), warnings=warnings,
    )  # fmt: skip
