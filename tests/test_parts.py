"""What methods open of the testbed by name: registered there, and nothing else is."""

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest

import refork_methods
from refork import registry
from refork.errors import CannotDo

ASKED = re.compile(r'\bpart\("([\w.]+)", (?:"refork-testbed"|_?TESTBED)\)')


def test_what_methods_ask_the_testbed_for_is_what_it_registers():
    files = Path(refork_methods.__file__).parent.rglob("*.py")
    asked = {name for file in files for name in ASKED.findall(file.read_text(encoding="utf-8"))}
    given = distribution("refork-testbed").entry_points.select(group="refork.parts")
    assert asked == {point.name for point in given}
    for name in asked:
        assert callable(registry.part(name, "refork-testbed"))


def test_without_the_testbed_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setattr(registry, "known", lambda kind, name: False)
    with pytest.raises(CannotDo, match="refork-testbed, which is not installed") as caught:
        registry.part("rot.run", "refork-testbed")
    assert caught.value.hint == "in a checkout: pip install -e packages/refork-testbed"
