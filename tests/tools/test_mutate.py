"""Mutation testing: survivors are known by what they change, and the list of them is true."""

from importlib.util import find_spec

import pytest

from support.toolbox import load

mutate = load("mutate")
SHOWN = """\
# ramify.core.stats.power.x_half__mutmut_3: survived
--- src/ramify/core/stats/power.py
+++ src/ramify/core/stats/power.py
@@ -1,3 +1,3 @@
 def half(x):
-    return x / 2
+    return x * 2
"""


def test_a_survivor_is_what_it_changes_not_its_number():
    one = mutate.survivor("core/stats/power.py", "ramify.core.stats.power.x_half__mutmut_3", SHOWN)
    assert one == mutate.Survivor("core/stats/power.py", "half", "return x / 2", "return x * 2")
    method = mutate.survivor("a.py", "ramify.a.xǁCurveǁdrop__mutmut_12", SHOWN)
    assert method.function == "Curve.drop"


def test_new_survivors_dead_ones_and_missing_reasons_are_told(monkeypatch, tmp_path):
    listing = tmp_path / "list.toml"
    listing.write_text("")
    monkeypatch.setattr(mutate, "LIST", listing)
    old, new = (mutate.Survivor("a.py", "half", "return x / 2", text) for text in ("return x", "pass"))
    mutate.write([old])
    assert mutate.judge([old, new], {"a.py"}) == (
        [new],
        ["a.py, half: 'return x / 2' is listed without a reason"],
    )
    listing.write_text(listing.read_text().replace('reason = ""', 'reason = "the same"'))
    assert mutate.judge([old], {"a.py"}) == ([], [])
    assert mutate.judge([], {"a.py"})[1] == ["a.py, half: 'return x / 2' is listed and does not survive"]
    assert mutate.judge([], {"b.py"}) == ([], []), "a file that was not run says nothing"


def test_the_list_names_lines_that_stand_there_and_reasons():
    package = mutate.ROOT / "src/ramify"
    files = dict(mutate.targets([]))
    for file, tests in files.items():
        assert (package / file).is_file(), file
        assert tests
        assert all((mutate.ROOT / "tests" / test).exists() for test in tests), tests
    for row in mutate.listed():
        assert row["file"] in files, row
        assert row["reason"].strip(), row
        stands = {line.strip() for line in (package / row["file"]).read_text().splitlines()}
        assert set(row["was"].splitlines()) <= stands, f"gone: {row['was']!r} of {row['file']}"


@pytest.mark.skipif(find_spec("mutmut") is None, reason="mutmut is not installed; `make mutate` installs it")
def test_a_run_tells_what_no_test_notices(tmp_path, monkeypatch):
    (tmp_path / "src/ramify").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "src/ramify/__init__.py").write_text("")
    (tmp_path / "src/ramify/half.py").write_text("def half(x):\n    return x / 2\n")
    test = "from ramify.half import half\n\n\ndef test_half():\n    assert half(0) == 0\n"
    (tmp_path / "tests/test_half.py").write_text(test)
    profile = "from hypothesis import settings\n\nsettings.register_profile('no-shrink')\n"
    (tmp_path / "tests/conftest.py").write_text(profile)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-q"\n\n[tool.other]\n')
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    (tmp_path / "work").mkdir()
    found = mutate.run("half.py", ["test_half.py"], tmp_path / "work")
    assert found.mutants == 2
    assert {one.becomes for one in found.survivors} == {"return x * 2", "return x / 3"}
