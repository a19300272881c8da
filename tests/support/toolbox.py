"""Loads a script of tools/ as a module."""

import importlib.util
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def load(name):
    """The module of ``tools/<name>.py``."""
    spec = importlib.util.spec_from_file_location(f"ramify_tool_{name}", TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(TOOLS))  # as when it is run: scripts of tools/ read each other
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(TOOLS))
    return module
