"""A model's case file on a directory that the investigator has read."""

from __future__ import annotations

from pathlib import Path

from refork.chat import ChatModel, PolicyChat
from refork.errors import ServerError
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.progress import Progress, silent, waits
from refork.tree.tree import Tree
from refork_methods.localize.loop import Localizer
from refork_methods.localize.loop_on_tree import record_runs
from refork_methods.localize.loop_settings import LoopSettings
from refork_methods.localize.on_repository import Localized
from refork_methods.localize.tools import RepoTools
from refork_methods.localize.trace import Trace


def open_chat(spec: str, max_tokens: int, progress: Progress = silent) -> PolicyChat:
    """The model of a policy's name, asked at temperature 0.7. Raises BadInput for a name that is none."""
    policy = open_policy(spec, on_wait=waits(progress))
    return PolicyChat(policy, Sampling(temperature=0.7, max_tokens=max_tokens))


def ask_model(
    found: Localized,
    issue: str,
    model: ChatModel,
    settings: LoopSettings | None = None,
    *,
    use_start: bool = True,
    tree: Path | None = None,
    progress: Progress = silent,
) -> Trace:
    """Let a model look further on what the investigator found; ``use_start`` shows it those places.

    ``tree``: record the run in this tree file, to fork it at any turn; one that is there is not asked again.

    Raises: ServerError where the model did not answer even once.
    """
    localizer = Localizer(model, RepoTools(found.snapshot), settings)
    start = found.case if use_start and found.case.locations else None
    if tree is None:
        made = localizer.trace(issue, start=start, progress=progress)
    else:
        with Tree.open(tree) as file:
            made = record_runs(file, localizer, issue, start=start, progress=progress)[0].trace
    if made.error is not None and not made.turns:
        raise ServerError(f"the model gave no answer: {made.error}", where=model.name)
    return made
