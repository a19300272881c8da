"""Build the wheel, install it alone into an empty environment, and use it there.

The empty environment borrows the dependencies of this one (they are large), after checking that the wheel
declares them; the package itself can only come from the wheel.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TRIAL = """
import pathlib, sys
import ramify
from importlib.metadata import requires, distribution
from packaging.requirements import Requirement

assert pathlib.Path(ramify.__file__).is_relative_to(sys.prefix), ramify.__file__
for need in map(Requirement, requires("ramify")):
    if need.marker is None or need.marker.evaluate({"extra": ""}):
        assert need.specifier.contains(distribution(need.name).version, prereleases=True), need

from ramify import MatchJudge, Remove, Sampling, ScriptedPolicy, Tree, compare, fork, plant_prompt

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
assert effect.low > 0, effect
print(f"wheel: a scripted fork gives {effect.difference:+.2f} [{effect.low:+.2f}, {effect.high:+.2f}]")
"""


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command; its output is shown only where it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    if cwd != ROOT and done.stdout:
        print(done.stdout, end="")


def main() -> None:
    """Build, install and try the wheel; exits with the output of the step that fails."""
    with tempfile.TemporaryDirectory(prefix="ramify-wheel-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=ROOT)
        wheel = next(folder.glob("ramify-*.whl"))
        run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=ROOT)
        run(
            *(sys.executable, "-m", "pip", "--python", folder / "env/bin/python"),
            *("install", "--quiet", "--no-deps", "--no-index", wheel),
            cwd=ROOT,
        )
        # Only packages are borrowed: a .pth file inside a borrowed folder (the editable install) is not read.
        site = next((folder / "env/lib").glob("python*/site-packages"))
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        run(folder / "env/bin/ramify", "--version", cwd=folder)
        run(folder / "env/bin/python", "-W", "error::UserWarning", "-c", TRIAL, cwd=folder)


if __name__ == "__main__":
    main()
