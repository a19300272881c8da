"""The measures of the house, each on a tiny made-up tree."""

import json

import pytest

from support.toolbox import load

house = load("house")


def build(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return house.House(root)


P = "packages/refork/src/refork"
M = "packages/refork-methods/src/refork_methods"


@pytest.mark.parametrize(
    ("key", "expected", "files"),
    [
        (
            "product_lines",
            3,
            {f"{P}/a.py": "x = 1\ny = 2\n", f"{P}/a.js": "1\n", f"{P}/a.txt": "no\n", f"{M}/m.py": "z = 1\n"},
        ),
        (
            "source_lines",
            3,
            {f"{P}/a.py": "x = 1\ny = 2\n", f"{M}/m.py": "z = 1\n", "tests/test_a.py": "1\n"},
        ),
        (
            "test_lines",
            3,
            {"tests/test_a.py": "1\n2\n", "packages/refork/tests/test_b.py": "1\n", f"{P}/a.py": "1\n"},
        ),
        (
            "top_level_names",
            1,
            {
                f"{P}/__init__.py": "__all__ = load()\n",
                f"{P}/__init__.pyi": "from .a import b as b\nc: int\n",
            },
        ),
        ("top_level_names", 2, {f"{P}/__init__.py": "__all__ = ['a', 'b']\nc = 1\n"}),
        (
            "product_commands",
            3,
            {f"{P}/cli/commands.py": "GROUPS = {\n  'A': ('tree', 'view'),\n  'M': ('method',),\n}\n"},
        ),
        (
            "single_importer_same_folder",
            1,
            {
                f"{P}/t/a.py": "from refork.t.b import x\nfrom refork.t import c\n",
                f"{P}/t/b.py": "x = 1\n",
                f"{P}/t/c.py": "",
                f"{P}/t/__init__.py": "",
                "tests/test_c.py": "from refork.t import c\n",
            },
        ),
        (
            "duplicate_public_class_names_in_product",
            1,
            {f"{P}/a.py": "class A: pass\nclass _B: pass\n", f"{P}/b.py": "class A: pass\nclass _B: pass\n"},
        ),
        (
            "room_cycles",
            1,
            {
                f"{P}/t/a.py": "def f():\n    import refork.u\n",
                f"{P}/t/__init__.py": "",
                f"{P}/u.py": "if TYPE_CHECKING:\n    from refork.t import a\n",
                f"{P}/v.py": "import refork.u\n",
            },
        ),
        (
            "product_imports_of_methods_or_testbed",
            2,
            {
                f"{P}/a.py": "import refork_methods.m\nX = 'refork_methods.n:f'\n",
                f"{M}/m.py": "import refork.a\n",
                f"{M}/n.py": "",
            },
        ),
        (
            "glossary_violations",
            3,
            {
                f"{P}/law.py": "def f(law):\n    law_of_it = 1\nclass MyLaw: pass\n",
                "tools/glossary.toml": "[[word]]\nwords=['law']\ninstead='d'\npart=true\n",
            },
        ),
        (
            "test_only_modules_in_wheels",
            1,
            {
                f"{P}/__init__.py": "import refork.a\n",
                f"{P}/a.py": "F = 'refork.c:f'\n",
                f"{P}/b.py": "",
                f"{P}/c.py": "",
                "tests/test_b.py": "import refork.b\n",
            },
        ),
        ("comment_share", 0.5, {f"{P}/a.py": '"""Doc # no."""\n\nx = "# no"  # yes\ny = 1  # noqa: E501\n'}),
    ],
)
def test_each_number_on_a_tiny_tree(tmp_path, key, expected, files):
    assert build(tmp_path, files).measure(key)[0] == expected


def test_what_is_over_is_named():
    numbers = dict(house.LIMITS)
    assert house.over(numbers) == []
    assert house.over({**numbers, "room_cycles": 1, "comment_share": 0.02}) == [
        "room_cycles: 1, at most 0",
        "comment_share: 0.02, at least 0.03",
    ]


def test_the_command_prints_one_object_and_checks_on_request(tmp_path, capsys):
    build(tmp_path, {f"{P}/__init__.py": "__all__ = ['a']\n"})
    assert house.main([], tmp_path) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(house.LIMITS)
    assert house.main(["--check"], tmp_path) == 1  # not one comment
    assert "comment_share" in capsys.readouterr().err


def test_some_numbers_are_checked_alone_and_their_places_are_told(tmp_path, capsys):
    build(tmp_path, {f"{P}/a.py": "class X: pass\n", f"{P}/b.py": "class X: pass\n"})
    assert house.main(["--check", "room_cycles", "glossary_violations"], tmp_path) == 0
    assert json.loads(capsys.readouterr().out) == {"room_cycles": 0, "glossary_violations": 0}
    assert house.main(["--check", "duplicate_public_class_names_in_product"], tmp_path) == 1
    assert "X: " in capsys.readouterr().err
