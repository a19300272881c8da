"""The filter as arithmetic, for both processors, without the kernel."""

import itertools

import pytest

from refork.sandbox.inside import filtered, landlock, limits
from refork.sandbox.inside.seccomp import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURE,
    AT_LEAST,
    DENY,
    EQUAL,
    KILL,
    LOAD,
    MACHINES,
    NUMBER,
    PLAIN,
    RETURN,
    X32,
    program,
)


def decide(steps, number, audit, arguments=(0,) * 6):
    """What a kernel would do: the few BPF operations that the filter uses."""
    data = {NUMBER: number, ARCHITECTURE: audit}
    data |= {16 + 8 * i: value & 0xFFFFFFFF for i, value in enumerate(arguments)}
    held, place = 0, 0
    while True:
        step = steps[place]
        place += 1
        if step.code == RETURN:
            return step.k
        if step.code == LOAD:
            held = data[step.k]
            continue
        true = {EQUAL: held == step.k, AT_LEAST: held >= step.k, ANY_BIT: bool(held & step.k)}[step.code]
        place += step.true if true else step.false


@pytest.fixture(params=MACHINES)
def machine(request):
    return MACHINES[request.param]


def test_every_call_is_denied_but_those_on_the_list(machine):
    steps = program(machine, 3, 4)
    listed = {machine.calls[name] for name in (*PLAIN, "mmap", "mprotect")}
    for number in range(600):
        assert (decide(steps, number, machine.audit) == ALLOW) == (number in listed), number


def test_reading_and_writing_are_bound_to_one_descriptor_each(machine):
    steps = program(machine, 3, 4)
    for name, allowed in (("read", 3), ("write", 4)):
        for fd in (*range(8), 2**31, 2**32 - 1):
            got = decide(steps, machine.calls[name], machine.audit, (fd, 0, 0, 0, 0, 0))
            assert got == (ALLOW if fd == allowed else DENY)


def test_no_memory_is_made_executable(machine):
    steps = program(machine, 3, 4)
    for name, protection in itertools.product(("mmap", "mprotect"), range(16)):
        got = decide(steps, machine.calls[name], machine.audit, (0, 0, protection, 0, 0, 0))
        assert got == (DENY if protection & 4 else ALLOW)


def test_another_architectures_numbers_end_the_process(machine):
    steps = program(machine, 3, 4)
    for other in {one.audit for one in MACHINES.values()} - {machine.audit} | {0x40000003, 0}:
        assert decide(steps, machine.calls["getpid"], other) == KILL
    assert decide(steps, X32 | machine.calls["getpid"], machine.audit) == KILL


def test_the_dangerous_calls_are_not_on_the_list():
    x86 = set(MACHINES["x86_64"].calls.values())
    arm = set(MACHINES["aarch64"].calls.values())
    # open openat socket connect clone fork vfork execve kill ptrace prctl seccomp bpf io_uring_setup
    assert not x86 & {2, 257, 41, 42, 56, 57, 58, 59, 62, 101, 157, 317, 321, 425, 435}
    # openat socket connect clone execve kill ptrace prctl seccomp bpf io_uring_setup
    assert not arm & {56, 198, 203, 220, 221, 129, 117, 167, 277, 280, 425, 435}


@pytest.mark.parametrize(("known", "size"), [(1, 8), (3, 8), (4, 16), (5, 16), (6, 24), (7, 24), (99, 24)])
def test_landlock_handles_all_that_the_kernel_knows(known, size):
    attributes = landlock.rules(known)
    assert len(attributes) == size
    files = int.from_bytes(attributes[:8], "little")
    assert files == 2 ** {1: 13, 3: 15, 4: 15}.get(known, 16) - 1


def test_limits_are_on_top_of_what_the_interpreter_has():
    wanted = limits.wanted(3, 1000, 500)
    assert wanted["RLIMIT_AS"] == 1500
    assert wanted["RLIMIT_CPU"] == 3
    assert wanted["RLIMIT_FSIZE"] == wanted["RLIMIT_NPROC"] == wanted["RLIMIT_CORE"] == 0
    assert limits.untaken(["RLIMIT_NONE"]) == ["RLIMIT_NONE"]


@pytest.fixture(params=["x86_64", "aarch64"])
def commands(request):
    """Of the filter of commands: what it decides of a call by its name or number."""
    column = ("x86_64", "aarch64").index(request.param)
    machine = MACHINES[request.param]

    def decided(call, *arguments, sockets=True, signals=True):
        steps = filtered.program(request.param, machine.audit, sockets=sockets, signals=signals)
        tables = {
            **filtered.SIGNALS,
            **filtered.NEVER,
            **filtered.ATTRIBUTES,
            **filtered.PAST_FILES,
            **filtered.OF_A_PROCESS,
        }
        tables |= {name: numbers for name, (numbers, _) in filtered.OF_A_KIND.items()}
        tables |= {"ioctl": filtered.IOCTL, "prctl": filtered.PRCTL, "clone": filtered.CLONE}
        number = call if isinstance(call, int) else tables[call][column]
        return decide(steps, number, machine.audit, (*arguments, *[0] * (6 - len(arguments))))

    return decided


def test_commands_name_no_process_but_themselves(commands):
    for call in filtered.OF_A_PROCESS:
        assert commands(call, 0, 7) == ALLOW
        assert {commands(call, pid) for pid in (1, 2, 4711, 2**31, 2**32 - 1)} == {DENY}
    for call, (_, kind) in filtered.OF_A_KIND.items():
        assert commands(call, kind, 0) == ALLOW
        assert {commands(call, kind, pid) for pid in (1, 4711, 2**32 - 1)} == {DENY}
        assert {commands(call, other, 0) for other in range(5) if other != kind} == {DENY}
    for call in ("ptrace", "process_vm_writev", "pidfd_open", "pidfd_getfd", "kcmp", "move_pages"):
        assert commands(call) == DENY


def test_commands_make_no_namespace_and_no_socket_where_landlock_alone_holds(commands):
    assert commands("clone", 17) == ALLOW
    assert {commands("clone", 17 | flag) for flag in (0x20000, 0x10000000, 0x20000000, 0x80)} == {DENY}
    assert {commands(call, sockets=False) for call in filtered.PAST_FILES} == {DENY}
    assert {commands(call, sockets=True) for call in filtered.PAST_FILES} == {ALLOW}
    assert {commands(call, signals=False) for call in filtered.SIGNALS} == {DENY}
    assert {commands(call, signals=True) for call in filtered.SIGNALS} == {ALLOW}


def test_commands_type_into_no_terminal_and_find_nothing_newer_than_the_lists(commands):
    assert commands("ioctl", 1, 0x5401) == ALLOW
    assert {commands("ioctl", 1, request) for request in filtered.REQUESTS} == {DENY}
    assert (commands("prctl", 15), commands("prctl", 62)) == (ALLOW, DENY)
    assert {commands(number) for number in range(467, 600)} == {filtered.UNKNOWN}
    assert commands("fsetxattr") == filtered.UNSUPPORTED
