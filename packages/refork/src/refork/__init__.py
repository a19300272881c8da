"""Go back to any token of a recorded rollout, change one thing, run on many times, and compare."""

import lazy_loader

# Loaded on first use, by the names in __init__.pyi: a script that only reads a tree does not wait for torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
