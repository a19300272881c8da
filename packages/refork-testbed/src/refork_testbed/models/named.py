"""``organism:NAME`` as the name of a policy: an entry point of ``refork.policy_names``."""

from __future__ import annotations

from refork.progress import Progress


def spelled(rest: str, progress: Progress) -> str:
    """``organism:NAME[+option=value]``: a tiny model with a recipe in this package, built where it is not.

    Raises:
        BadInput: there is no such organism.
    """
    from refork_testbed.models.build import build

    name, plus, options = rest.partition("+")
    return f"hf:{build(name, progress=progress)}{plus}{options}"
