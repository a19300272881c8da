"""Shell commands: what outlives them, and what they cannot reach, by effect."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from refork.errors import CannotDo
from refork.sandbox.inside import seccomp
from refork.sandbox.inside.jail import HOME
from refork.sandbox.inside.shell import HEAD, Runner
from refork.sandbox.result import SandboxResult, UnconfinedWarning
from refork.sandbox.shell import Shell, ShellLimits, ShellState
from refork_testbed.sandbox.arena import Arena
from support.poisons import FIRST, NEXT, POISONS, PROBE, after, found, processes, told_to
from support.shell_escapes import attempts

BEGIN = ShellState.of_files({"docs/list.txt": "pear\napple\n", "one.txt": "1\n"}, ["empty"])
#: Few processes: run by root, all sandboxes share a user, and a fork bomb must not starve tests beside it.
LIMITS = ShellLimits(seconds=30, output=20000, disk=1 << 20, files=128, processes=24)


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with Arena() as found:
        yield found


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def shell(request: pytest.FixtureRequest, arena: Arena) -> Iterator[Shell]:
    try:
        found = Shell(LIMITS, ways=[request.param])
    except CannotDo as error:
        pytest.skip(str(error))
    yield found
    found.close()


def test_nothing_gets_out(shell: Shell, arena: Arena) -> None:
    told = arena.prepare()
    for command in attempts(told):
        ran = shell.run(BEGIN, command, seconds=30.0)
        assert arena.effects(SandboxResult("ok", value=ran.output), []) == [], command
    assert shell.run(BEGIN, "cat one.txt").output == "1\n"


@pytest.mark.parametrize(
    ("command", "ended"),
    [
        ("f() { f | f & f; }; f", None),
        ("while :; do :; done", "time"),
        ("sleep 60", "time"),
        ("yes", "output"),
        ("sleep 60 & (sleep 60 &) ; setsid sleep 60 & echo on", "exit"),
        ("head -c 9000000 /dev/zero > big; wc -c < big", "exit"),
        ("exit 7", "exit"),
        ("exec true", "exit"),
        ("kill -9 $$", "exit"),
        ("echo 'abc", "exit"),
        ("cat", "exit"),
    ],
)
def test_commands_end_and_leave_nothing_running(shell: Shell, command: str, ended: str | None) -> None:
    ran = shell.run(BEGIN, command, seconds=0.25 if ended in (None, "time") else 30.0)
    assert ended is None or ran.ended == ended
    assert len(ran.state.files().get("big", "")) <= LIMITS.disk
    again = shell.run(BEGIN, "ps ax | grep -c '[s]leep 60'; cat one.txt", seconds=30.0)
    assert again.output.splitlines()[-1] == "1"
    if shell.way == "namespaces":
        assert again.output.splitlines()[0] == "0"


def test_any_number_of_files_is_bounded(shell: Shell) -> None:
    if shell.way != "namespaces":
        assert not {layer.name: layer.on for layer in shell.layers}["disk"]
        return
    many = "i=0; while [ $i -lt 300 ]; do echo x > f$i || break; i=$((i+1)); done 2>/dev/null; echo $i"
    assert int(shell.run(BEGIN, many, seconds=30.0).output) < LIMITS.files


STEPS = (
    "cd docs; X='a  b'; Y=\"it's\n two\"; ln ../one.txt two; ln -s list.txt sym",
    'echo "$X" "$Y"; echo 2 >> two; cat ../one.txt; printf \'\\377\\001\' > raw',
    "mkdir -p deep/er; touch deep/er/x; chmod 500 deep/er; chmod 000 deep; ls deep",
    "cd -; chmod 700 docs/deep; unset TERM; mkfifo pipe; rm -r empty; wc -c docs/raw",
    "echo ${TERM-unset}; stat -c '%a %F' docs/deep docs/deep/er docs/sym; cat docs/two; ls",
    "unset X; cd docs/deep; pwd",
    'echo "[$X]"; cd ..; rmdir ../nothing; readlink sym',
)


def test_a_state_restored_anywhere_goes_on_alike(shell: Shell) -> None:
    straight, broken = BEGIN, BEGIN
    for command in STEPS:
        one = shell.run(straight, command)
        two = shell.run(ShellState.from_json(broken.to_json()), command)
        assert (one.output, one.status, one.state.to_json()) == (two.output, two.status, two.state.to_json())
        straight, broken = one.state, two.state
    assert straight.files()["docs/two"] == straight.files()["one.txt"] == "1\n2\n"
    assert "pipe" not in {entry.path for entry in straight.entries}
    assert straight.cwd == f"{HOME}/docs"
    assert straight.variables == {"OLDPWD": f"{HOME}/docs/deep", "TERM": None, "Y": "it's\n two"}


@pytest.mark.parametrize("name", ["sh", "bash", "busybox"])
def test_every_shell_tells_its_variables_as_they_are(name: str, tmp_path: Path) -> None:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    place = tmp_path / "a\nb"
    place.mkdir()
    wanted = {"A": "5$ `x` \\ \"q\" 'q'", "B": "one\n\ttwo\n", "C": ""}
    command = "".join(f"{key}={shlex.quote(value)}; " for key, value in wanted.items())
    said = tmp_path / "said"
    outer = 'exec 9>"$1"; shift; exec "$@"'
    shell = [found, *(["sh"] if name == "busybox" else []), "-a", "-c", f"{HEAD}{command}exit 3"]
    ran = subprocess.run(
        ["/bin/sh", "-c", outer, "x", str(said), *shell],
        cwd=place,
        env={"PATH": "/bin", "TERM": "dumb"},
        check=False,
    )
    assert ran.returncode == 3
    runner = object.__new__(Runner)
    runner.base, runner.way = {"PATH": "/bin", "TERM": "dumb"}, SimpleNamespace(alone=True)
    left = runner._left({"cwd": "/", "variables": {}}, said.read_text())
    assert left == {"cwd": str(place), "variables": wanted}


#: Commands that are hard on whoever reads the folder back, and empties it for the next episode.
HOSTILE = (
    "mkdir -p $(printf 'd/%.0s' $(seq 300)) 2>/dev/null",
    "n=$(printf %0250d 0); i=0; while [ $i -lt 20 ] && mkdir $n && cd $n; do i=$((i+1)); done 2>/dev/null",
    "mkdir -p a/b; touch a/b/c; chmod 000 a/b a . $TMPDIR /tmp 2>/dev/null",
    "printf x > \"$(printf 'a\\nb\\377 c')\"; touch -- '-rf' '*' ' '",
    "for i in 1 2 3; do truncate -s 500000 f$i; done",
    "mknod c c 1 1; mkfifo p; ln -s / root; ln -s l l; ln one.txt two; cp /bin/sh s; chmod 6777 s",
    "rm -rf ~; rmdir ~; mv ~ ~x; ln -s /etc ~; cd ..; rm -rf home tmp",
    "printf 'export =x A=1\\n/etc\\n' >&9; kill -9 $$",
    "export LD_PRELOAD=/x HOME=/ TMPDIR=/y PATH=/z",
    "ulimit -v unlimited; ulimit -n 100000; exec 9>&- 1>&- 2>&-",
    "printf 'a\\000b\\377'; echo " + "a" * 140000,
    "echo \0\ud800\udcff",
    "X=$(printf %0131000d 0); Y=$X",
)


def test_a_hostile_command_is_over_when_it_is_over(shell: Shell) -> None:
    for command in HOSTILE:
        ran = shell.run(BEGIN, command, seconds=30.0)
        assert ran.ended in ("exit", "output"), command[:80]
        assert len(ran.state.entries) <= LIMITS.files
        assert sum(map(len, ran.state.files().values())) <= LIMITS.disk
        again = shell.run(ShellState.from_json(ran.state.to_json()), ":")
        assert (again.ended, again.state.entries) == ("exit", ran.state.entries), command[:80]
        assert shell.run(BEGIN, "cat one.txt").output == "1\n", command[:80]


def test_a_lost_process_leaves_nothing(arena: Arena) -> None:
    """Whether a command ends it, or whoever started it is gone: then the socket's other end closes."""
    mark = f"{arena.folder}x"
    try:
        shell = Shell(LIMITS, ways=["landlock"])
    except CannotDo as error:
        pytest.skip(str(error))
    ran = shell.run(BEGIN, f"setsid sh -c 'sleep 60; : {mark}' & setsid sleep 61 & kill -9 $PPID; sleep 1")
    assert (ran.ended, ran.status) == ("exit", -9)  # it ended what stood over it, and itself with that
    assert mark not in subprocess.run(["ps", "axww"], check=True, capture_output=True, text=True).stdout
    shell.run(BEGIN, "mkdir -p a/b; chmod 000 a/b a .")
    os.kill(processes(shell)[-1], signal.SIGKILL)
    lost = shell.run(BEGIN, "cat one.txt")
    assert (lost.ended, lost.state) == ("lost", BEGIN)
    assert shell.run(BEGIN, "cat one.txt").output == "1\n"
    shell.run(BEGIN, "mkdir -p a/b; chmod 000 a/b a .")
    process, sock, folder, _ = shell._stop.peek()[2]
    sock.shutdown(socket.SHUT_RDWR)
    process.wait(900)
    assert not Path(folder).exists()
    shell.close()


@pytest.fixture(scope="module")
def fresh(shell: Shell) -> str:
    """What the first episode of a process finds."""
    other = Shell(LIMITS, ways=[shell.way])
    told = found(other)
    other.close()
    return told


def test_there_are_sixty_poisons_and_no_two_are_the_same() -> None:
    assert len({one.command for one in POISONS}) == len({one.name for one in POISONS}) == len(POISONS) >= 60


@pytest.mark.parametrize("group", range(9))
def test_the_next_episode_is_as_in_a_fresh_process(shell: Shell, fresh: str, group: int) -> None:
    """In groups: each command in an episode of its own, then one that looks; alone where that one differs."""
    mine = POISONS[group::9]
    for poison in mine:
        ran = shell.run(FIRST, told_to(poison, shell), seconds=0.3 if poison.short else 30.0)
        assert ran.ended != "lost", (poison.name, ran.output)  # the runner was reached
        # What does not parse tries nothing.
        wrong = re.search("yntax error|read-only value|Illegal number|invalid option", ran.output)
        assert not wrong, (poison.name, wrong)
    if found(shell) != fresh:
        assert [one for one in (after(poison, shell, fresh) for poison in mine) if one.differs] == []
        raise AssertionError("together they leave what none does alone")


def test_what_stands_over_a_command_has_no_right_that_the_runner_has(shell: Shell) -> None:
    if shell.way != "namespaces":
        pytest.skip("commands see no other process there")
    told = shell.run(BEGIN, "grep -E 'CapPrm|CapEff|Seccomp:' /proc/1/status; ls /proc/1/fd", seconds=30.0)
    assert [line.split()[-1] for line in told.output.splitlines()[:3]] == ["0" * 16, "0" * 16, "2"]
    assert "Permission denied" in told.output


@pytest.mark.parametrize(
    "change",
    [
        "ulimit -n 20", "umask 77", "renice -n 5 -p 0", "X=1", "chmod 700 ~", "touch more", "sleep 1 &",
        "touch -d 2001-01-01 one.txt", "trap '' INT", "perl -e 'system q(ipcmk -Q)'", "cd /",
        "head -c 500000 /dev/zero > $TMPDIR/x", "nice -n 3 sh -c \"$PROBE\"; exit",
    ],
)  # fmt: skip
def test_the_probe_sees_what_a_command_changes(shell: Shell, fresh: str, change: str) -> None:
    if shell.way == "landlock" and any(word in change for word in ("ipcmk", "sleep", "zero")):
        pytest.skip("commands see no other process, System V object or file system there")
    state = replace(NEXT, variables={"PROBE": PROBE} if "PROBE" in change else {})
    assert shell.run(state, f"{change}\n{PROBE}", seconds=30.0).output != fresh


def shown(shell: Shell) -> str:
    """Limits and priorities that an episode finds, without what it sees of the whole machine.

    ``SigQ`` counts the signals that wait for all processes of the user, so other tests move it.
    """
    return re.sub(r"(?m)^SigQ:.*\n", "", found(shell).partition("# self")[0])


@pytest.mark.parametrize(
    ("alter", "what"),
    [
        ("prlimit --pid $runner --nproc=20", "RLIMIT_NPROC"),
        ("prlimit --pid $runner --stack=0", "RLIMIT_STACK"),
        ("renice 7 -p $runner", "niceness"),
        ("chrt -b -p 0 $runner", "scheduler"),
        ("taskset -p 1 $runner", "processors"),
        ("ionice -c 3 -p $runner", "disk priority"),
        ("kill -9 $runner; sleep 9", ""),
    ],
)
def test_a_runner_that_was_altered_is_replaced(alter: str, what: str) -> None:
    """Only where nothing holds commands back can they reach it."""
    if alter.startswith("taskset") and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one processor")
    with pytest.warns(UnconfinedWarning):
        shell = Shell(LIMITS, ways=[], unconfined=True)
    before, runner = shown(shell), processes(shell)[-1]
    with pytest.warns(UnconfinedWarning):
        ran = shell.run(BEGIN, f"runner={runner}; {alter}; echo x > one.txt", seconds=30.0)
    assert (ran.ended, ran.state) == ("lost", BEGIN)
    assert what in ran.output
    assert processes(shell)[-1] != runner
    assert shown(shell) == before
    shell.close()


def test_a_fork_talks_to_a_process_of_its_own(shell: Shell) -> None:
    reads, writes = os.pipe()
    if not (child := os.fork()):
        os.write(writes, shell.run(BEGIN, "cat one.txt").output.encode())
        shell.close()
        os._exit(0)
    assert [shell.run(BEGIN, "echo here").output for _ in range(3)] == ["here\n"] * 3
    os.waitpid(child, 0)
    assert os.read(reads, 10) == b"1\n"
    os.close(reads)
    os.close(writes)


@pytest.mark.parametrize(
    "row",
    [
        ["../out", "file", 0o644, ""],
        ["/etc/x", "file", 0o644, ""],
        ["a//b", "folder", 0o755, ""],
        ["pipe", "device", 0o644, ""],
        ["nul\0", "file", 0o644, ""],
        ["x", "file", 0o644, None],
        ["x", "file", "rw", ""],
    ],
)
def test_a_forged_state_is_refused(row: list[object]) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        ShellState.from_json({"entries": [row], "cwd": "/", "variables": {}})


def test_layers_say_what_holds(shell: Shell) -> None:
    on = {layer.name: layer.on for layer in shell.layers}
    assert on == {
        "namespaces": shell.way == "namespaces",
        "landlock": shell.way == "landlock",
        "seccomp": seccomp.here() is not None,
        "disk": shell.way == "namespaces",
        "rlimits": True,
    }


def test_a_system_that_confines_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotDo, match="cannot confine shell commands"):
        Shell(LIMITS, ways=[])
    with pytest.warns(UnconfinedWarning, match="files, network and processes"):
        loose = Shell(LIMITS, ways=[], unconfined=True)
    assert loose.run(BEGIN, "pwd; cat one.txt").output == f"{HOME}\n1\n"
    assert [layer.name for layer in loose.layers if layer.on] == ["rlimits"]
    loose.close()
