"""Follow-up questions after a rollout, indirect (the act is not named) or direct (a forced choice).

Source: arXiv:2606.26071, appendix E. That an indirect question may not name the act is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from refork.errors import BadInput
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import Point
from refork_methods.forensics.instruments.reading import Reader
from refork_methods.forensics.instruments.replies import Replies, collect, put_message, subject_of


def check_indirect(question: str, names_of_act: Sequence[str]) -> None:
    """Refuse an indirect question that names the act.

    Raises: BadInput where a name stands in it as a whole word, or no name is given to look for.
    """
    if not names_of_act:
        raise BadInput("say which words would name the act, so that an indirect question can be checked")
    for name in names_of_act:
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", question, re.IGNORECASE):
            raise BadInput(
                f"an indirect question must not name the act, and this one says {name!r}",
                where=repr(question[:60]),
                hint="ask it with indirect=False, or without that word",
            )


def forced_choice(question: str, options: Sequence[str]) -> str:
    """A direct question with lettered options, answered by a letter.

    Raises: BadInput for fewer than two options, or more than 26.
    """
    if not 2 <= len(options) <= 26:
        raise BadInput(f"{len(options)} options; a choice has 2 to 26")
    lines = [f"{chr(65 + i)}) {option}" for i, option in enumerate(options)]
    return "\n".join([question, *lines, "Answer with one letter."])


def follow_up(
    ends: Sequence[Point],
    policy: Policy,
    question: str,
    reader: Reader,
    draws: int = 1,
    *,
    indirect: bool = True,
    names_of_act: Sequence[str] = (),
    settings: Sampling | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Replies:
    """Replies to a question put at the end of rollouts, on the tree.

    What a model says about its motive afterwards is a report, not the motive: it may not know, and it may
    not say.

    Raises: BadInput where an indirect question names the act, or there is no rollout.
    """
    if indirect:
        check_indirect(question, names_of_act)
    name = "indirect follow-up" if indirect else "direct follow-up"
    points = [put_message(end, policy, question, name) for end in ends]
    _, replies, warnings = collect(
        points, policy, draws, reader, settings=settings, seed=seed, stage=name, progress=progress
    )
    confounds = ("self-knowledge", "unwillingness") + (() if indirect else ("suggestion by the question",))
    return Replies(
        name, question, reader.labels, replies, reader.producer.id, subject_of(policy),
        "what the model says about it afterwards", confounds, warnings=warnings,
    )  # fmt: skip
