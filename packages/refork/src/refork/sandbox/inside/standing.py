"""What another process can change of this one: read before and after, it shows whether somebody did."""

from __future__ import annotations

import ctypes
import os
import platform
import resource

IOPRIO_GET = {"x86_64": 252, "AMD64": 252, "aarch64": 31, "arm64": 31}


def standing() -> dict[str, object]:
    """Limits, niceness, scheduler, processors and disk priority, by name. Files of /proc are root's."""
    found: dict[str, object] = {
        name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"
    }
    found["niceness"] = os.getpriority(os.PRIO_PROCESS, 0)
    if hasattr(os, "sched_getaffinity"):
        found["processors"] = sorted(os.sched_getaffinity(0))
        found["scheduler"] = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    if (number := IOPRIO_GET.get(platform.machine())) and platform.system() == "Linux":
        found["disk priority"] = ctypes.CDLL(None).syscall(number, 1, 0)
    return found


def changed(before: dict[str, object]) -> str:
    """Names of what is not as it was; nothing where all is."""
    now = standing()
    return ", ".join(sorted(name for name in before | now if before.get(name) != now.get(name)))
