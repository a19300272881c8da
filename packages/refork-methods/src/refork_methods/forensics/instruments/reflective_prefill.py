"""Reflective prefill: the final reasoning continued behind an opener such as "Looking back, I".

The opener is not the model's own, so what follows is off-policy: a share of confessions is an upper bound.

Source: arXiv:2606.26071, appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.forking.change import Insert
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import Point
from refork_methods.forensics.instruments.reading import Reader
from refork_methods.forensics.instruments.replies import Replies, collect, last_said, subject_of


def reasoning_end(end: Point, close: str | None = None) -> Point:
    """The point behind the last text of the last turn: before the tokens that end it, or before ``close``.

    ``close`` is what ends the reasoning, such as ``</think>``; a turn without it is reasoning to its end.

    Raises:
        BadInput: the walk's last event is not a turn of the policy, or it has no text there.
        CannotDo: token ids or their places are not recorded.
    """
    at = last_said(end)
    node = at.node
    if node.kind != "action":
        raise BadInput("the policy was still to answer here: there is no final reasoning", where=node.id[:12])
    if node.tokens is None or node.offsets is None:
        raise CannotDo(
            "this turn was recorded without token ids and their places in the text",
            where=f"node {node.id[:12]}",
            hint="a prefill needs a policy that takes token ids",
        )
    text, offsets = node.text_upto(at.keep), node.offsets[: at.keep]
    found = text.rfind(close) if close else -1
    length = len(text) if found < 0 else found
    # Whole tokens before the mark; those that add no text (the end of the turn) lie behind it.
    keep = (
        int(np.searchsorted(offsets, length, side="left")) + 1
        if found < 0
        else int((offsets <= length).sum())
    )
    if keep < 1 or length < 1:
        raise BadInput("there is no reasoning before the mark", where=f"node {node.id[:12]}")
    return Point(node, keep, at.tree)


def reflective_prefill(
    ends: Sequence[Point],
    policy: Policy,
    opener: str,
    reader: Reader,
    draws: int = 1,
    *,
    close: str | None = None,
    settings: Sampling | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Replies:
    """Continuations behind an opener put at the end of the final reasoning of rollouts.

    Raises:
        BadInput: there is no final reasoning, or no opener.
        CannotDo: the policy cannot go on inside a turn.
    """
    if not opener.strip():
        raise BadInput("the opener is empty: then the continuation is on-policy and no prefill")
    points = [reasoning_end(end, close) for end in ends]
    _, replies, warnings = collect(
        points, policy, draws, reader, change=Insert(text=opener), settings=settings, seed=seed,
        stage="reflective prefill", progress=progress,
    )  # fmt: skip
    warnings += ("off-policy: the opener is not the model's own, so positives are upper bounds",)
    return Replies(
        "reflective prefill", opener, reader.labels, replies, reader.producer.id, subject_of(policy),
        "at most so many would say it on their own", ("suggestion by the opener",), upper_bound=True,
        warnings=warnings,
    )  # fmt: skip
