"""Skips where this system contains no programs, and what tells two folders apart."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache

import pytest

#: All that a folder holds: names, kinds, modes, links and bytes.
LISTED = [
    "sh", "-c",
    "tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | sha256sum;"
    " find . | sort | tail -n +2",
]  # fmt: skip
#: The same by the system's own tools, so that a fault of ours is no reason to skip.
OVERLAY = (
    "mkdir l u w; mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w,userxattr l && mount -t proc p /proc"
)


def contained_or_skip():
    """Nothing; skips where the system grants no overlay in namespaces."""
    if refused := _refused():
        pytest.skip(f"this system grants no overlay in namespaces: {refused}")


@cache
def _refused() -> str:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        try:
            ran = subprocess.run(
                ["unshare", "-Urmpf", "sh", "-c", OVERLAY],
                cwd=folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
        except OSError as error:
            return str(error)
        return ran.stderr or "unshare failed" if ran.returncode else ""
