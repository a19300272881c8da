"""The worker threads of PyTorch's products, when another thread is to do them from now on."""

from __future__ import annotations

import ctypes
from pathlib import Path

_SOFT = 1  # omp_pause_soft: what was set stays set
_MAPS = Path("/proc/self/maps")


def release_workers() -> bool:
    """Let go of this thread's OpenMP workers; the next product here makes new ones. Says if there were any.

    GNU's OpenMP lets workers wait actively only while there are no more of them than processors. A thread
    that decodes beside one which loaded the model finds twice as many, so all fall asleep between products:
    on two processors we measured 44 tokens per second against 112. Elsewhere than on Linux nothing is done.
    """
    released = False
    for library in sorted(_loaded()):
        try:
            released |= ctypes.CDLL(library).omp_pause_resource_all(_SOFT) == 0
        except (OSError, AttributeError):  # an OpenMP older than 5.0
            continue
    return released


def _loaded() -> set[str]:
    """GNU OpenMP libraries in this process."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return set()
    return {line.split()[-1] for line in lines if "libgomp" in line}
