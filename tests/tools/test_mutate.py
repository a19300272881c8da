"""Mutation testing: survivors are known by what they change, and the list of them is true."""

from importlib.util import find_spec

import pytest

from support.toolbox import load

mutate = load("mutate")
SHOWN = """\
# refork.stats.power.x_half__mutmut_3: survived
--- packages/refork/src/refork/stats/power.py
+++ packages/refork/src/refork/stats/power.py
@@ -1,3 +1,3 @@
 def half(x):
-    return x / 2
+    return x * 2
"""


def test_a_survivor_is_what_it_changes_not_its_number():
    one = mutate.survivor("refork/stats/power.py", "refork.stats.power.x_half__mutmut_3", SHOWN)
    assert one == mutate.Survivor("refork/stats/power.py", "half", "return x / 2", "return x * 2")
    method = mutate.survivor("a.py", "refork.a.xǁCurveǁdrop__mutmut_12", SHOWN)
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
    def lies(file):
        (found,) = mutate.ROOT.glob(f"packages/*/src/{file}")
        return found

    files = dict(mutate.targets([]))
    for file, tests in files.items():
        assert lies(file)
        assert tests
        for test in tests:
            name, _, function = test.lstrip("-").partition("::")
            assert f"def {function}" in (mutate.ROOT / name).read_text(), test
    for row in mutate.listed():
        assert row["file"] in files, row
        assert row["reason"].strip(), row
        stands = {line.strip() for line in lies(row["file"]).read_text().splitlines()}
        assert set(row["was"].splitlines()) <= stands, f"gone: {row['was']!r} of {row['file']}"


def test_the_same_program_in_other_words_is_no_survivor():
    def same(was, becomes):
        return mutate.same(mutate.Survivor("a.py", "f", was, becomes))

    assert same("", ""), "a number whose next is the same float"
    assert same("return x.astype(np.float64)", "return x.astype(None)")
    assert same("for a, b in zip(x, y, strict=True):", "for a, b in zip(x, y, ):")
    assert same("for a, b in zip(x, y, strict=True):", "for a, b in zip(x, y, strict=False):")
    assert not same("return x.astype(np.int64)", "return x.astype(None)")
    assert not same("for a, b in zip(x, y, strict=True):", "for a, b in zip(x, strict=True):")
    assert not same("return f(x, y)", "return f(x, )")


def test_properties_are_written_so_that_mutmut_reads_them():
    source = (
        "class A:\n    size: int = 4\n\n    @property\n    def half(self):\n        return self.size / 2\n"
    )
    source += "\n    @staticmethod\n    def one():\n        return 1\n"
    made = mutate.plain(source)
    assert "@property" not in made
    assert "@staticmethod" in made
    space: dict[str, type] = {}
    exec(made, space)
    assert space["A"]().half == 2
    assert mutate.plain("def f():\n    return 1\n") == "def f():\n    return 1\n"


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    ran = []

    def run(file, tests, folder, jobs):
        if file == "b.py" and not ran.count("b.py"):
            ran.append(file)
            raise KeyboardInterrupt
        ran.append(file)
        return mutate.Found(3, [mutate.Survivor(file, "f", "return 1", "return 2")])

    for name in ("a.py", "b.py", "test_a.py"):
        path = tmp_path / ("tests" if name.startswith("test") else "packages/refork/src") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    listing = tmp_path / "list.toml"
    rows = "".join(f'[[target]]\nfile = "{name}.py"\ntests = ["tests/test_a.py"]\n' for name in "ab")
    listing.write_text(rows)
    for name, value in {"run": run, "LIST": listing, "config": lambda *_: ""}.items():
        monkeypatch.setattr(mutate, name, value)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    kept = ["--keep", str(tmp_path / "kept")]
    assert mutate.main(kept) == 130
    assert "what was judged is kept" in capsys.readouterr().err
    assert mutate.main(kept) == 1, "survivors that are not listed"
    assert ran == ["a.py", "b.py", "b.py"], "a.py is remembered"
    told = capsys.readouterr().out
    assert told.count("3 mutants, 1 survive, 1 not listed") == 2
    (tmp_path / "packages/refork/src/a.py").write_text("x = 1\n")
    mutate.main(kept)
    assert ran[3:] == ["a.py"], "what changed is run again"
    ran.clear()
    mutate.main(["b.py"])
    assert ran == ["b.py"], "without a folder nothing is remembered"


@pytest.mark.skipif(find_spec("mutmut") is None, reason="mutmut is not installed; `make mutate` installs it")
def test_a_run_tells_what_no_test_notices(tmp_path, monkeypatch):
    (tmp_path / "packages/refork/src/refork").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "packages/refork/src/refork/__init__.py").write_text("")
    two = "class Two:\n    @property\n    def size(self):\n        return 2\n"
    (tmp_path / "packages/refork/src/refork/half.py").write_text(f"def half(x):\n    return x / 2\n\n\n{two}")
    test = "from refork.half import Two, half\n\n\ndef test_half():\n    assert half(0) == 0\n"
    test += "    assert Two().size\n"
    slow = "\n\ndef test_slow():\n    assert half(2) == 1\n"
    (tmp_path / "tests/test_half.py").write_text(test)
    profile = "from hypothesis import settings\n\nsettings.register_profile('no-shrink')\n"
    (tmp_path / "conftest.py").write_text(profile)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-q"\n\n[tool.other]\n')
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    (tmp_path / "work").mkdir()
    found = mutate.run("refork/half.py", ["tests/test_half.py"], tmp_path / "work")
    (tmp_path / "tests/test_half.py").write_text(test + slow)
    assert (
        mutate.run(
            "refork/half.py", ["tests/test_half.py", "-tests/test_half.py::test_slow"], tmp_path / "work"
        )
        == found
    )
    assert found.mutants == 3
    assert {(one.function, one.becomes) for one in found.survivors} == {
        ("half", "return x * 2"),
        ("half", "return x / 3"),
        ("Two.size", "return 3"),
    }
