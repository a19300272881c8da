"""``organism:NAME`` as the name of a policy: an entry point of ``refork.policy_names``."""

from __future__ import annotations

from refork.core.run.progress import Progress
from refork.learn.organism.build import build


def spelled(rest: str, progress: Progress) -> str:
    """``hf:DIR`` of an organism, built where it is not; options behind the name stay behind it.

    Raises:
        BadInput: there is no such organism.
    """
    name, plus, options = rest.partition("+")
    return f"hf:{build(name, progress=progress)}{plus}{options}"
