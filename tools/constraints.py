"""Write constraints.txt: exact versions of all that setup, bench and mutate install, as they are here.

Run it in an environment that `make setup`, `make bench` and `make mutate` built and whose tests pass. PyTorch
is left out: the Makefile pins it by itself (TORCH=), before anything that depends on it.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Exact versions of all that `make setup`, `bench` and `mutate` install but PyTorch (TORCH in the Makefile).
# Written by tools/constraints.py; do not edit.
"""
#: Pinned by TORCH=, whose CUDA builds bring and pin their own packages; and by the group agents.
LEFT_OUT = {"torch", "triton", "deepagents"}


def roots(project: dict[str, object], groups: dict[str, list[str]]) -> list[Requirement]:
    """Everything the project, its extras, its groups and its build ask for by name."""
    extras = project.get("optional-dependencies", {})
    lists = [project["dependencies"], *extras.values(), *groups.values()]  # type: ignore[attr-defined]
    return [Requirement(line) for names in lists for line in names]  # type: ignore[attr-defined]


def closure(asked: list[Requirement]) -> dict[str, str]:
    """Installed versions of the requirements and of all they need here, by canonical name."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(need, extra) for need in asked for extra in ("", *need.extras)]
    while todo:
        need, extra = todo.pop()
        name = canonicalize_name(need.name)
        if (name, extra) in seen or name in LEFT_OUT or name.startswith("nvidia-"):
            continue
        seen.add((name, extra))
        try:
            package = distribution(need.name)
        except PackageNotFoundError:
            sys.exit(f"{need.name} is not installed here: run `make setup`, `bench` and `mutate` first")
        found[name] = package.version.split("+")[0]
        for line in package.requires or []:
            child = Requirement(line)
            if child.marker is None or child.marker.evaluate({"extra": extra}):
                todo += [(child, more) for more in ("", *child.extras)]
    return found


def main() -> None:
    """Rewrite constraints.txt in the repository's root."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    del groups["agents"]  # it has an environment of its own, and exact versions
    asked = [Requirement("pip")]
    for file in sorted((ROOT / "packages").glob("*/pyproject.toml")):
        asked += roots(tomllib.loads(file.read_text())["project"], groups)
    pins = closure([need for need in asked if not need.name.startswith("refork")])
    # What torch itself needs is pinned too, so that TORCH= brings nothing unpinned but its own builds.
    pins |= closure(
        [Requirement(line) for line in distribution("torch").requires or [] if "extra ==" not in line]
    )
    lines = [f"{name}=={version}" for name, version in sorted(pins.items())]
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(lines) + "\n")
    print(f"constraints.txt: {len(lines)} packages")


if __name__ == "__main__":
    main()
