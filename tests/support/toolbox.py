"""Loads a script of tools/ or benchmarks/ as a module."""

import importlib.util
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def load(name):
    """The module of ``tools/<name>.py``."""
    return _load(TOOLS / f"{name}.py", f"refork_tool_{name}")


def load_benchmark(name):
    """The module of ``benchmarks/<name>.py``."""
    return _load(TOOLS.parent / "benchmarks" / f"{name}.py", f"refork_benchmark_{name}")


def _load(file, name):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(file.parent)
    sys.path.insert(0, folder)  # as when it is run: scripts of one folder read each other
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module
