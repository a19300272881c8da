"""Landlock with an empty rule set: no file, TCP port, abstract socket or signal is in reach."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

CREATE, RESTRICT = 444, 446  # the same numbers on every architecture
PR_SET_NO_NEW_PRIVS = 38
#: Version of the kernel's Landlock -> how many kinds of file access it knows.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_LATER = 16


def version() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(CREATE, None, ctypes.c_size_t(0), 1)))


def rules(known: int) -> bytes:
    """``struct landlock_ruleset_attr`` that handles everything version ``known`` can, and so denies it."""
    files = (1 << _FILE_RIGHTS.get(known, _LATER)) - 1
    network = 0b11 if known >= 4 else 0
    scoped = 0b11 if known >= 6 else 0
    # As long as this version knows it: an older kernel refuses fields that are set beyond its own.
    fields = [files, network, scoped][: 1 + (known >= 4) + (known >= 6)]
    return struct.pack(f"={len(fields)}Q", *fields)


def restrict(attributes: bytes) -> None:
    """Restrict this process, for good.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the Landlock rules")
    try:
        none, one = ctypes.c_ulong(0), ctypes.c_ulong(1)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, one, none, none, none) or libc.syscall(RESTRICT, fd, 0):
            raise OSError(ctypes.get_errno(), "the kernel refused Landlock")
    finally:
        os.close(fd)
