"""A kernel that lacks what the sandboxes need: to see that nothing runs without a wall there."""

from __future__ import annotations

import errno
import platform
from typing import Literal, TypeAlias

from refork.errors import CannotDo
from refork.sandbox.inside import filtered, seccomp
from refork.sandbox.inside.seccomp import ALLOW, ANY_BIT, ARGUMENTS, EQUAL, LOAD, NUMBER, RETURN, Instruction

Part: TypeAlias = Literal["landlock", "seccomp", "namespaces"]
_NONE = 0x00050000 | errno.ENOSYS
#: Numbers of system calls on x86_64 and aarch64.
_CALLS: dict[Part, tuple[tuple[int, int], ...]] = {
    "landlock": ((444, 444), (445, 445), (446, 446)),
    "seccomp": ((317, 277),),
    "namespaces": ((272, 97), (308, 268), filtered.CLONE3),
}


def lack(*parts: Part) -> None:
    """From here on the kernel answers this process, and all it starts, that it has no such calls. For good.

    Raises:
        CannotDo: this system has no seccomp filter, by which that is done.
    """
    machine = seccomp.here()
    if machine is None:
        raise CannotDo("calls cannot be taken away without seccomp", where=platform.machine())
    column = [*seccomp.MACHINES.values()].index(machine)
    steps = [Instruction(LOAD, 0, 0, NUMBER)]
    for part in parts:
        for numbers in _CALLS[part]:
            steps += [Instruction(EQUAL, 0, 1, numbers[column]), Instruction(RETURN, 0, 0, _NONE)]
    if "seccomp" in parts:
        steps += _refused(filtered.PRCTL[column], EQUAL, seccomp.PR_SET_SECCOMP)
    if "namespaces" in parts:
        steps += _refused(filtered.CLONE[column], ANY_BIT, filtered.SPACES)
    seccomp.install(seccomp.packed([*steps, Instruction(RETURN, 0, 0, ALLOW)]))


def _refused(number: int, test: int, value: int) -> list[Instruction]:
    """A call that is not there where its first argument passes a test."""
    return [
        Instruction(EQUAL, 0, 4, number),
        Instruction(LOAD, 0, 0, ARGUMENTS),
        Instruction(test, 0, 1, value),
        Instruction(RETURN, 0, 0, _NONE),
        Instruction(RETURN, 0, 0, ALLOW),
    ]
