"""Where draws are done: in this process, in others of this machine, or on a Ray cluster."""

from refork.forking.backend.backend import Backend, open_backend

__all__ = ["Backend", "open_backend"]
