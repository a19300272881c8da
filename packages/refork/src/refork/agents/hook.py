"""A folder for PYTHONPATH that patches a Python program as it begins, in whatever environment it runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from refork.errors import CannotDo

#: Python imports a module of this name before the program. One that the program has is imported, too.
_NAME: Final = "sitecustomize"
#: Loaded by their files: the program's environment need not have Refork, or what Refork needs.
_FILES: Final = ("refork.agents.program_side", "refork.agents.step_names", "refork.agents.patches")
_TEXT: Final = """
import importlib.machinery
import importlib.util
import os
import sys


def _run(name, place):
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_here = os.path.dirname(os.path.abspath(__file__))
_rest = [one for one in sys.path if os.path.abspath(one) != _here]
_other = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _other is not None and _other.origin:
    _run("sitecustomize", _other.origin)
for _name, _place in {files!r}:
    _module = _run(_name, _place)
_module.patch()
"""


@contextmanager
def hooked(given: Mapping[str, str], wanted: bool) -> Iterator[dict[str, str]]:
    """Variables with which Python programs are patched as they begin, while inside; none unless ``wanted``.

    Raises:
        CannotDo: what is loaded there is not at hand as files.
    """
    if not wanted:
        yield {}
        return
    files = []
    for name in _FILES:
        spec = find_spec(name)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            raise CannotDo(f"{name} is no file that a program could load", hint="call refork.agents.patch()")
        files.append((name, spec.origin))
    with tempfile.TemporaryDirectory(prefix="refork-hook-") as folder:
        Path(folder, f"{_NAME}.py").write_text(_TEXT.replace("{files!r}", repr(files)))
        path = [folder, *filter(None, [given.get("PYTHONPATH")])]
        yield {"PYTHONPATH": os.pathsep.join(path)}
