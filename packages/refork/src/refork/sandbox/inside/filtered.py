"""A seccomp filter for shell commands: no tracing or altering of others, no namespaces, no way past files."""

from __future__ import annotations

from functools import cache

from refork.sandbox.inside import seccomp
from refork.sandbox.inside.seccomp import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURE,
    ARGUMENTS,
    AT_LEAST,
    DENY,
    EQUAL,
    KILL,
    LOAD,
    NUMBER,
    RETURN,
    X32,
    Instruction,
)

#: ENOSYS: the C library then uses ``clone``, whose flags a filter can see; others do without the call.
UNKNOWN = 0x00050000 | 38
#: ENOTSUP: what copies files takes it for a file system that has no such attributes.
UNSUPPORTED = 0x00050000 | 95
#: System calls with this number and above are newer than these lists, on every processor.
NEWER = 467
#: All flags of ``clone`` that make a namespace.
SPACES = 0x7E020000 | 0x80
#: System calls that no command gets, by number on x86_64 and aarch64.
NEVER = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "syslog": (103, 116),
}  # fmt: skip
#: What a file keeps beside its content and mode, and a state does not hold: it would not outlive a snapshot.
ATTRIBUTES = {
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
}  # fmt: skip
#: Ways past Landlock, which has no say over them: sockets (UDP, and those in files), System V, queues.
PAST_FILES = {
    "socket": (41, 198), "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186),
    "shmctl": (31, 195), "semctl": (66, 191), "msgctl": (71, 187), "semop": (65, 193),
    "semtimedop": (220, 192), "msgsnd": (69, 189), "msgrcv": (70, 188), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}  # fmt: skip
#: Signals to others, which Landlock holds back from its version 6 on: not for tools, which need none.
SIGNALS = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
#: Calls that take the number of a process first; 0, the caller itself, is the only one that passes.
OF_A_PROCESS = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "get_robust_list": (274, 100),
}  # fmt: skip
#: Calls that take a kind first and a number second: the kind that means one process, and again 0.
OF_A_KIND = {"setpriority": ((141, 140), 0), "ioprio_set": ((251, 30), 1)}
#: Requests that are refused: TIOCSTI and TIOCLINUX type into a terminal; two change flags of files.
REQUESTS = (0x5412, 0x541C, 0x40086602, 0x401C5820)
#: ``prctl``: shares the processor's core with another process.
SCHED_CORE = 62
CLONE, CLONE3, IOCTL, PRCTL = (56, 220), (435, 435), (16, 29), (157, 167)


def program(machine: str, audit: int, *, sockets: bool, signals: bool = True) -> list[Instruction]:
    """The filter for a processor; with ``sockets`` or ``signals``, these and the like stay allowed."""
    column = ("x86_64", "aarch64").index(machine)
    denied = NEVER | ({} if sockets else PAST_FILES) | ({} if signals else SIGNALS)
    refused = {numbers[column]: DENY for numbers in denied.values()}
    refused |= {numbers[column]: UNSUPPORTED for numbers in ATTRIBUTES.values()}
    refused[CLONE3[column]] = UNKNOWN
    steps = [
        Instruction(LOAD, 0, 0, ARCHITECTURE),
        Instruction(EQUAL, 1, 0, audit),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(LOAD, 0, 0, NUMBER),
        Instruction(AT_LEAST, 0, 1, X32),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(AT_LEAST, 0, 1, NEWER),
        Instruction(RETURN, 0, 0, UNKNOWN),
    ]
    for number, answer in refused.items():
        steps += [Instruction(EQUAL, 0, 1, number), Instruction(RETURN, 0, 0, answer)]
    for numbers in OF_A_PROCESS.values():
        steps += _only(numbers[column], [(0, 0)])
    for numbers, kind in OF_A_KIND.values():
        steps += _only(numbers[column], [(0, kind), (1, 0)])
    steps += _but(IOCTL[column], 1, REQUESTS) + _but(PRCTL[column], 0, (SCHED_CORE,))
    steps += [
        Instruction(EQUAL, 0, 3, CLONE[column]),
        Instruction(LOAD, 0, 0, ARGUMENTS),
        Instruction(ANY_BIT, 0, 1, SPACES),
        Instruction(RETURN, 0, 0, DENY),
    ]
    return [*steps, Instruction(RETURN, 0, 0, ALLOW)]


def _only(number: int, values: list[tuple[int, int]]) -> list[Instruction]:
    """A call that passes where each of these arguments (place, value) has its value, of 32 bits."""
    checks: list[Instruction] = []
    for place, value in values:
        checks += [
            Instruction(LOAD, 0, 0, ARGUMENTS + 8 * place),
            Instruction(EQUAL, 1, 0, value),
            Instruction(RETURN, 0, 0, DENY),
        ]
    return [Instruction(EQUAL, 0, len(checks) + 1, number), *checks, Instruction(RETURN, 0, 0, ALLOW)]


def _but(number: int, place: int, values: tuple[int, ...]) -> list[Instruction]:
    """A call that is refused where an argument, of 32 bits, has one of these values."""
    checks = [Instruction(LOAD, 0, 0, ARGUMENTS + 8 * place)]
    for value in values:
        checks += [Instruction(EQUAL, 0, 1, value), Instruction(RETURN, 0, 0, DENY)]
    return [Instruction(EQUAL, 0, len(checks) + 1, number), *checks, Instruction(RETURN, 0, 0, ALLOW)]


@cache
def ready(*, sockets: bool, signals: bool = True) -> bytes | None:
    """The filter for this system, made once and before it is in a hurry; None where there is none."""
    found = seccomp.here()
    if found is None:
        return None
    name = next(name for name, machine in seccomp.MACHINES.items() if machine == found)
    return seccomp.packed(program(name, found.audit, sockets=sockets, signals=signals))


def install(*, sockets: bool, signals: bool = True) -> str:
    """Filter this process and all it starts, for good; why not, where the system has no such filter."""
    code = ready(sockets=sockets, signals=signals)
    if code is None:
        return "no seccomp filter for this system and processor"
    try:
        seccomp.install(code)
    except OSError as error:
        return str(error)
    return ""
