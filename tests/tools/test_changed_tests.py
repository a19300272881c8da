"""Which tests a change calls for, in a repository of three packages."""

import pytest

from support.toolbox import load

changed_tests = load("changed_tests")

FILES = {
    "packages/refork/pyproject.toml": '[project]\ndependencies = ["numpy>=2"]\n',
    "packages/refork-worlds/pyproject.toml": '[project]\ndependencies = ["refork==0.1.0"]\n',
    "packages/refork-methods/pyproject.toml": (
        '[project]\ndependencies = ["refork"]\n[project.optional-dependencies]\nweb = ["refork-worlds>=0"]\n'
    ),
    "packages/refork/src/refork/tree.py": "",
    "packages/refork/tests/test_tree.py": "from refork import tree\n",
    "packages/refork/tests/test_served.py": "from support.served import opened\n",
    "packages/refork/tests/decoding/conftest.py": "",
    "packages/refork/tests/decoding/test_cache.py": "import refork.tree\n",
    "packages/refork-worlds/tests/test_web.py": "import refork_worlds\n",
    "packages/refork-methods/tests/test_cliff.py": "import refork_methods.cliff\n",
    "tests/support/served.py": "from support import deeper\n",
    "tests/support/deeper.py": "import refork_worlds.web\n",
    "tests/test_plain.py": "import refork\n",
    "tests/test_methods.py": "import refork_methods\n",
    "tests/tools/test_house.py": "",
    "docs/page.md": "",
}
M, W = "packages/refork-methods/tests", "packages/refork-worlds/tests"


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        ([], []),
        # A method's own tests, and the one elsewhere that imports it.
        (["packages/refork-methods/src/refork_methods/cliff.py"], [M, "tests/test_methods.py"]),
        # Methods need the worlds by an extra; a test of the product reaches them through two helpers.
        (
            ["packages/refork-worlds/src/refork_worlds/web.py"],
            [M, W, "packages/refork/tests/test_served.py", "tests/test_methods.py"],
        ),
        (
            ["packages/refork/src/refork/tree.py"],
            [M, W, "packages/refork/tests", "tests/test_methods.py", "tests/test_plain.py"],
        ),
        (["packages/refork/tests/test_tree.py"], ["packages/refork/tests/test_tree.py"]),
        (["packages/refork/tests/decoding/conftest.py"], ["packages/refork/tests/decoding"]),
        (["tests/support/deeper.py"], ["packages/refork/tests/test_served.py"]),
        (["packages/refork/tests/test_gone.py"], []),
        (["docs/page.md"], ["tests"]),
        (["tools/house.py"], ["tests/tools"]),
        (["notebooks/core.ipynb"], ["tests/tools"]),
        (["docs/page.md", "pyproject.toml"], ["tests", "packages"]),
        (["packages/refork/pyproject.toml"], ["tests", "packages"]),
    ],
)
def test_what_a_change_calls_for(root, paths, wanted):
    assert changed_tests.called_for(paths, root) == sorted(wanted) or wanted == changed_tests.ALL
    if wanted == changed_tests.ALL:
        assert changed_tests.called_for(paths, root) == wanted


def test_here_the_product_is_needed_by_all():
    assert changed_tests.dependants()["refork"] == {
        "refork", "refork-methods", "refork-worlds", "refork-testbed"
    }  # fmt: skip
