"""Name the tests that a change calls for: those of the changed packages and of whatever depends on them.

A package depends on what its pyproject.toml names, extras too, and on what that depends on. A test elsewhere
counts where it imports a changed package, itself or through ``tests/support``. A change of what holds for
all (settings of the repository, a conftest at the top) calls for all tests.

    python changed_tests.py             beside the branch that this one goes to (origin/main, else main)
    python changed_tests.py --base X    beside commit X

Prints paths for pytest, one a line; nothing where nothing was changed.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALL = ["tests", "packages"]
#: Tests that read a kind of file: pages are checked wherever they stand.
READ = {
    "docs/": ["tests"], "tools/": ["tests/tools"], "notebooks/": ["tests/tools"],
    "examples/": ["tests/examples"],
    "benchmarks/": ["tests/tools", "packages/refork/tests/growing", "packages/refork-methods/tests"],
}  # fmt: skip


def changed(base: str) -> list[str]:
    """Paths of files that differ from where this branch left ``base``, uncommitted and new ones too."""
    left = _git("merge-base", "HEAD", base).strip()
    return sorted(
        {*_git("diff", "--name-only", left).split(), *_git("ls-files", "-o", "--exclude-standard").split()}
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"changed_tests: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def usual_base() -> str:
    """The branch that this one goes to."""
    known = _git("branch", "--all", "--format=%(refname:short)").split()
    return "origin/main" if "origin/main" in known else "main"


def dependants(root: Path = ROOT) -> dict[str, set[str]]:
    """For each package, all packages that need it, itself too."""
    needs: dict[str, set[str]] = {}
    for file in sorted(root.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(file.read_text())["project"]
        extras = project.get("optional-dependencies", {}).values()
        named = [*project.get("dependencies", ()), *(one for extra in extras for one in extra)]
        needs[file.parent.name] = {re.split(r"[\[\s<>=!~;]", one, maxsplit=1)[0] for one in named}
    found = {name: {name} for name in needs}
    for _ in needs:  # as many rounds as there are packages reach everything
        for name in needs:
            for other, wanted in needs.items():
                if wanted & found[name]:
                    found[name].add(other)
    return found


def imports(file: Path) -> set[str]:
    """Dotted names that a file imports: ``a.b`` of ``from a import b`` too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def reached(root: Path = ROOT) -> dict[str, set[str]]:
    """For each test, what it imports, through ``tests/support`` too."""
    support = {f"support.{file.stem}": imports(file) for file in (root / "tests/support").glob("*.py")}
    tests = [*root.glob("tests/**/test_*.py"), *root.glob("packages/*/tests/**/test_*.py")]
    found = {}
    for file in tests:
        names = imports(file)
        while more := {name for one in names & support.keys() for name in support[one]} - names:
            names |= more
        found[file.relative_to(root).as_posix()] = names
    return found


def called_for(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests that changes of these files call for."""
    wanted: set[str] = set()
    packages: set[str] = set()
    helpers: set[str] = set()
    for path in paths:
        parts = path.split("/")
        if parts[0] == "packages" and len(parts) > 3 and parts[2] == "src":
            packages.add(parts[1])
        elif path.startswith("tests/support/"):
            helpers.add(f"support.{Path(path).stem}")
        elif parts[0] == "tests" or (parts[0] == "packages" and len(parts) > 3 and parts[2] == "tests"):
            # A test is its own; anything else in a folder of tests is for the tests of that folder.
            test = Path(path).name.startswith("test_")
            wanted.add(path if test else str(Path(path).parent))
        elif any(path.startswith(start) for start in READ):
            wanted |= {test for start, tests in READ.items() if path.startswith(start) for test in tests}
        elif path.endswith(".md"):
            wanted.add("tests")
        else:
            return ALL
    needing = dependants(root)
    below = {name for one in packages for name in needing[one]}
    wanted |= {f"packages/{name}/tests" for name in below}
    modules = {name.replace("-", "_") for name in below}
    for test, names in reached(root).items():
        if names & helpers or {name.partition(".")[0] for name in names} & modules:
            wanted.add(test)
    there = sorted(path for path in wanted if (root / path).exists())
    return [path for path in there if not any(path.startswith(f"{other}/") for other in there)]


def main(arguments: list[str] | None = None) -> int:
    """Print the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--base", help="commit or branch; default: origin/main, else main")
    asked = parser.parse_args(arguments)
    print("\n".join(called_for(changed(asked.base or usual_base()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
