"""Build all wheels; use the product's alone in an empty environment, then with the methods', then with all.

The empty environment borrows from this one (they are large) what the wheels declare, what that needs, and
nothing else: no extra. So every module must be importable without the extras, or say which extra it wants.
The packages themselves can only come from the wheels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("refork", "refork-worlds", "refork-testbed", "refork-methods")

TRIAL = """
import pathlib, sys
import refork
from importlib.metadata import requires, distribution
from packaging.requirements import Requirement

assert pathlib.Path(refork.__file__).is_relative_to(sys.prefix), refork.__file__
for need in map(Requirement, requires("refork")):
    if need.marker is None or need.marker.evaluate({"extra": ""}):
        assert need.specifier.contains(distribution(need.name).version, prereleases=True), need

from refork import MatchJudge, Remove, Sampling, ScriptedPolicy, Tree, compare, fork, plant_prompt, sweep

law = {"": {" think": 0.5, " guess": 0.5}, " think": {" right": 1.0}, " guess": {" wrong": 1.0}}
policy = ScriptedPolicy.from_chain(law | {" right": {"": 1.0}, " wrong": {"": 1.0}})
with Tree.memory() as tree:
    judge, settings = MatchJudge("right"), Sampling(max_tokens=8)
    start = plant_prompt(tree, policy, "Well?")
    base = fork(start, policy, 64, settings=settings, judge=judge)
    guess = next(walk for walk in base.leaves() if " guess" in walk.leaf.text)
    point = tree.at(guess.leaf, 1)
    control = fork(point, policy, 64, settings=settings, judge=judge)
    other = fork(point, policy, 64, Remove(1), settings=settings, judge=judge)
    effect = compare(control, other)
    swept = sweep(tree.at(guess.leaf), policy, 8, settings=settings, judge=judge)
assert effect.low > 0, effect
assert len(swept.points) > 1, swept
print(f"wheel: a scripted fork gives {effect.difference:+.2f} [{effect.low:+.2f}, {effect.high:+.2f}]")
"""

SERVES = """
import json, sys, urllib.request
from pathlib import Path
from refork import open_policy
from refork.chat import PolicyChat
from refork.serve import serving
from refork.viewer.live.server import viewing
from refork.viewer.live.shelf import Shelf

body = json.dumps({"model": "coin", "messages": [{"role": "user", "content": "toss"}]}).encode()
with serving({"coin": PolicyChat(open_policy("scripted:coin"))}) as address:
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(f"{address}/chat/completions", body, headers)
    said = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
assert said in (" heads", " tails", ""), said
with viewing(Shelf([Path("mine.db")])) as address:
    page = urllib.request.urlopen(address).read().decode()
assert "<html" in page
print(f"wheel: served {said!r}, and a page of {len(page)} characters")
"""

IMPORTS = """
import importlib, pkgutil, sys
from importlib.metadata import metadata
from refork.errors import MissingExtra, extra_packages, install_command

wanting, read = [], 0

def visit(name):
    global read
    try:
        module = importlib.import_module(name)
    except MissingExtra as error:
        assert any(error.hint == install_command(extra) for extra in extras), error
        assert error.hint.startswith("pip install "), error
        return wanting.append(name)
    read += 1
    for part in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not part.name.endswith("__main__"):
            visit(part.name)

packages = sys.argv[1:]
extras = {one for name in packages for one in metadata(name).get_all("Provides-Extra") or ()}
for name in packages:
    visit(name.replace("-", "_"))
print(f"wheel: {read} modules of {', '.join(packages)} import; {len(wanting)} name an extra that they want")
"""


#: Without the testbed: every command is listed, and a verb that is about planted worlds says what is missing.
COMMANDS = """
from refork import registry
from refork.errors import CannotDo

names = [one.name for one in registry.described("commands") if one.package == "refork-methods"]
lacking = [one.name for one in registry.described("commands") if one.lacks]
assert len(names) > 15, names
assert not lacking, lacking
try:
    registry.part("memory.arms", "refork-testbed")
except CannotDo as error:
    assert "refork-testbed" in str(error), error
else:
    raise AssertionError("the testbed is not installed here")
print(f"wheel: {len(names)} commands of refork-methods load without the testbed")
"""

#: A user's own log; the scripted policy needs no download, and speaks of coins.
CHAT = '{"messages": [{"role": "user", "content": "toss"}, {"role": "assistant", "content": " heads"}]}'


def first_fork(refork: Path, folder: Path) -> None:
    """What a first-time user does after installing: import a log, then run the fork that this suggests."""
    (folder / "chats.jsonl").write_text(CHAT + "\n", encoding="utf-8")
    told = run(refork, "tree", "import", "mine.db", "chats.jsonl", "--policy", "scripted:coin", cwd=folder)
    suggested = next(line for line in told.splitlines() if line.startswith("next "))
    command = suggested.removeprefix("next").split()[1:]
    run(refork, *command, "--success-regex", "heads", "--draws", "16", cwd=folder)


def borrow(site: Path, *extras: str) -> None:
    """Link what the wheels in ``site``, and some extras of the product, need, and all that this needs."""
    todo = [(one, "") for one in _own(site)]
    todo += [(one, extra) for one in _own(site) if one.name == "refork" for extra in extras]
    done: set[tuple[str, str]] = set()
    while todo:
        one, extra = todo.pop()
        for need in map(Requirement, one.requires or ()):
            if need.marker is not None and not need.marker.evaluate({"extra": extra}):
                continue
            for wanted in ("", *need.extras):
                key = (canonicalize_name(need.name), wanted)
                if key not in done and not key[0].startswith("refork"):
                    done.add(key)
                    todo.append((distribution(need.name), wanted))
                    _link(distribution(need.name), site)


def _own(site: Path) -> list[Distribution]:
    found = Distribution.discover(path=[str(site)])
    return [one for one in found if one.name.startswith("refork")]


def _link(one: Distribution, site: Path) -> None:
    for name in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
        # A .pth file (an editable install) would lead back to this environment.
        if not name.endswith(".pth") and not (site / name).exists():
            (site / name).symlink_to(Path(str(one.locate_file(name))))


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; building is silent unless it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    if cwd != ROOT and done.stdout:
        print(done.stdout, end="")
    return done.stdout


def main() -> None:
    """Build, install and try the wheels; exits with the output of the step that fails."""
    with tempfile.TemporaryDirectory(prefix="refork-wheel-") as name:
        folder = Path(name)
        for package in PACKAGES:
            build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
            run(sys.executable, *build, ROOT / "packages" / package, cwd=ROOT)
        run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=ROOT)
        site, python = next((folder / "env/lib").glob("python*/site-packages")), folder / "env/bin/python"
        strict = (python, "-W", "error::UserWarning", "-c")
        install(python, next(folder.glob("refork-*.whl")))
        borrow(site)
        run(folder / "env/bin/refork", "--version", cwd=folder)
        first_fork(folder / "env/bin/refork", folder)
        run(*strict, TRIAL, cwd=folder)
        run(*strict, IMPORTS, "refork", cwd=folder)
        install(python, next(folder.glob("refork_methods-*.whl")))
        borrow(site)
        run(*strict, IMPORTS, "refork", "refork-methods", cwd=folder)
        run(*strict, COMMANDS, cwd=folder)
        install(python, *folder.glob("refork_worlds-*.whl"), *folder.glob("refork_testbed-*.whl"))
        borrow(site)
        run(*strict, IMPORTS, *PACKAGES, cwd=folder)
        borrow(site, "serve")
        run(*strict, SERVES, cwd=folder)


def install(python: Path, *wheels: Path) -> None:
    """Put wheels, and nothing that they need, into an environment."""
    quiet = ("install", "--quiet", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "--python", python, *quiet, *wheels, cwd=ROOT)


if __name__ == "__main__":
    main()
