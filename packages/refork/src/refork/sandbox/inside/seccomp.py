"""A seccomp filter that leaves a process its own memory, two pipe ends, the clock and the way out.

An allow-list: every other system call (open, socket, clone, execve, kill, ptrace, ...) fails with EPERM;
a call in another architecture's numbering ends the process.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from typing import NamedTuple

KILL, ALLOW, DENY = 0x80000000, 0x7FFF0000, 0x00050000 | errno.EPERM
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF operations
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
PROT_EXEC, X32 = 4, 0x40000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2

_PLAIN = (
    "brk clock_getres clock_gettime clock_nanosleep exit exit_group futex getpid getrandom gettid "
    "gettimeofday mremap munmap nanosleep restart_syscall rt_sigprocmask rt_sigreturn sched_yield "
    "sigaltstack"
)
#: Calls that touch nothing but the process itself.
PLAIN = _PLAIN.split()


class Machine(NamedTuple):
    """A processor's audit number and its system call numbers."""

    audit: int
    calls: dict[str, int]


MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        {
            "read": 0, "write": 1, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigprocmask": 14,
            "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25, "nanosleep": 35, "getpid": 39, "exit": 60,
            "gettimeofday": 96, "sigaltstack": 131, "gettid": 186, "futex": 202, "restart_syscall": 219,
            "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231,
            "getrandom": 318,
        },
    ),
    "aarch64": Machine(
        0xC00000B7,
        {
            "read": 63, "write": 64, "exit": 93, "exit_group": 94, "futex": 98, "nanosleep": 101,
            "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "sched_yield": 124,
            "restart_syscall": 128, "sigaltstack": 132, "rt_sigprocmask": 135, "rt_sigreturn": 139,
            "gettimeofday": 169, "getpid": 172, "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216,
            "mmap": 222, "mprotect": 226, "getrandom": 278,
        },
    ),
}  # fmt: skip


class Instruction(NamedTuple):
    """One BPF instruction: operation, jump if true, jump if false, constant."""

    code: int
    true: int
    false: int
    k: int


def program(machine: Machine, reads: int, writes: int) -> list[Instruction]:
    """The filter of a process that may read descriptor ``reads`` and write descriptor ``writes``."""
    calls = machine.calls
    steps = [
        Instruction(LOAD, 0, 0, ARCHITECTURE),
        Instruction(EQUAL, 1, 0, machine.audit),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(LOAD, 0, 0, NUMBER),
        # x32 has numbers of its own under the same architecture, which these tables do not know.
        Instruction(AT_LEAST, 0, 1, X32),
        Instruction(RETURN, 0, 0, KILL),
    ]
    for name in PLAIN:
        steps += [Instruction(EQUAL, 0, 1, calls[name]), Instruction(RETURN, 0, 0, ALLOW)]
    for name, descriptor in (("read", reads), ("write", writes)):
        steps += [
            Instruction(EQUAL, 0, 4, calls[name]),
            Instruction(LOAD, 0, 0, ARGUMENTS),
            Instruction(EQUAL, 0, 1, descriptor),
            Instruction(RETURN, 0, 0, ALLOW),
            Instruction(RETURN, 0, 0, DENY),
        ]
    for name in ("mmap", "mprotect"):  # memory, but none that can be executed
        steps += [
            Instruction(EQUAL, 0, 4, calls[name]),
            Instruction(LOAD, 0, 0, ARGUMENTS + 8 * 2),
            Instruction(ANY_BIT, 1, 0, PROT_EXEC),
            Instruction(RETURN, 0, 0, ALLOW),
            Instruction(RETURN, 0, 0, DENY),
        ]
    return [*steps, Instruction(RETURN, 0, 0, DENY)]


def here() -> Machine | None:
    """This processor's table; None where there is none, or the system is not Linux."""
    if sys.platform != "linux" or sys.byteorder != "little" or struct.calcsize("P") != 8:
        return None
    return MACHINES.get({"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine()))


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def packed(steps: list[Instruction]) -> bytes:
    """A program as the kernel reads it."""
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def install(code: bytes) -> None:
    """Give this process a packed filter, for good.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    given = _Program(len(code) // 8, code)
    none, one, mode = ctypes.c_ulong(0), ctypes.c_ulong(1), ctypes.c_ulong(MODE_FILTER)
    failed = libc.prctl(PR_SET_NO_NEW_PRIVS, one, none, none, none)
    if failed or libc.prctl(PR_SET_SECCOMP, mode, ctypes.byref(given), none, none):
        raise OSError(ctypes.get_errno(), "the kernel refused the seccomp filter")
