"""Resource limits of one run."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None  # type: ignore[assignment]


def address_space() -> int:
    """Bytes of address space this process has now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


def wanted(seconds: int, memory: int, base: int) -> dict[str, int]:
    """Limit by name: ``memory`` bytes on top of the ``base`` that the interpreter has, ``seconds`` of CPU."""
    return {
        "RLIMIT_CPU": seconds,
        "RLIMIT_AS": base + memory,
        "RLIMIT_DATA": base + memory,
        "RLIMIT_NPROC": 0,
        "RLIMIT_FSIZE": 0,
        # Descriptors 0 to 4: the null device and the two pipe ends.
        "RLIMIT_NOFILE": 5,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }


def untaken(names: Iterable[str]) -> list[str]:
    """Those of the limits that this system has not, or knows and does not enforce."""
    idle = {"RLIMIT_AS"} if sys.platform == "darwin" else set()
    return sorted(name for name in names if name in idle or not hasattr(resource, name))


def apply(limits: dict[str, int]) -> list[str]:
    """Set each limit, soft and hard, for good; the names of those that could not be set."""
    missing = untaken(limits)
    for name, value in limits.items():
        if name not in missing:
            try:
                # The soft CPU limit alone has a signal of its own, which tells it from a kill.
                resource.setrlimit(getattr(resource, name), (value, value + (name == "RLIMIT_CPU")))
            except (ValueError, OSError):
                missing.append(name)
    return missing
