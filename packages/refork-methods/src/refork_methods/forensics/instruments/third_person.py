"""Third-person probe: the setting described, and the question what an agent there should do.

It asks about the environment (is this allowed here, what is meant), never about the model's motives: the
answer shows what the model knows when it is not acting.

Source: arXiv:2606.26071, appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence

from refork.growing.plant import plant_prompt
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Message
from refork_methods.forensics.instruments.reading import Reader
from refork_methods.forensics.instruments.replies import Replies, collect, subject_of


def third_person(
    tree: Tree,
    policy: Policy,
    prompt: str | Sequence[Message],
    reader: Reader,
    draws: int = 50,
    *,
    settings: Sampling,
    seed: int = 0,
    progress: Progress = silent,
) -> Replies:
    """Answers about a described setting, each a fresh conversation on the tree.

    Compare it with the first-person rate by :func:`refork_methods.forensics.statistics.difference` of the
    two arms: a model that condemns in the third person what it does in the first was not merely confused
    about the rules.

    Raises: BadInput for an empty prompt.
    """
    point = plant_prompt(tree, policy, prompt)
    _, replies, warnings = collect(
        [point], policy, draws, reader, settings=settings, seed=seed, stage="third-person probe",
        progress=progress,
    )  # fmt: skip
    asked = prompt if isinstance(prompt, str) else "\n".join(str(m.get("content") or "") for m in prompt)
    return Replies(
        "third-person probe", asked, reader.labels, replies, reader.producer.id, subject_of(policy),
        "what the model says an agent should do there", ("capability", "evaluation awareness"),
        warnings=warnings,
    )  # fmt: skip
