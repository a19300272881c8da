"""One command in a jail: what it finds, what it may use, what comes out; in every way of holding it back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from refork.errors import CannotDo
from refork.sandbox import jailed as module
from refork.sandbox.jailed import Bounds, JailResult, Way, exposed, jailed, only
from refork.sandbox.result import SandboxResult, UnconfinedWarning
from refork_testbed.sandbox.arena import VARIABLE, Arena

#: A whole system of programs: more than any tool is shown, so that what holds is not what is missing.
SYSTEM = exposed(["/bin", "/usr", "/lib", "/lib64"])
BOUNDS = Bounds(seconds=30, file=1 << 20, disk=4 << 20, kept_bytes=1 << 16, output=1 << 16, processes=8)


@pytest.fixture(scope="module", autouse=True, params=["namespaces", "landlock", "landlock of Linux 6.2"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    name, _, older = request.param.partition(" of ")
    with only(name), pytest.MonkeyPatch.context() as patch:
        if older:
            patch.setattr(module, "NEWEST", 3)
        try:
            sh("true")
        except CannotDo as error:
            pytest.skip(str(error))
        yield name


@pytest.fixture
def readable() -> Iterator[Path]:
    """A file that anyone may read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "file").write_text("of anyone")
    yield folder / "file"
    shutil.rmtree(folder)


def sh(
    command: str, bounds: Bounds = BOUNDS, files: dict[str, bytes] | None = None, *wanted: str
) -> JailResult:
    environment = {"PATH": "/usr/bin:/bin"}
    told = ["/bin/sh", "-c", command]
    return jailed(told, SYSTEM, files=files, wanted=wanted, bounds=bounds, environment=environment)


def test_files_go_in_and_come_out() -> None:
    data = bytes(range(256)) * 200
    found = sh(
        "rev a > /dev/null; cat a > b; echo told; echo wrong >&2; exit 7", BOUNDS, {"a": data}, "b", "c"
    )
    assert (found.status, found.ended, found.out) == (7, "exit", b"told\n")
    assert found.err.endswith(b"wrong\n")
    assert found.files == {"b": data}


def test_it_begins_in_its_folder_which_is_new_each_time() -> None:
    first = sh("test $PWD = $HOME && test $HOME = $TMPDIR && touch left && ls -A")
    assert (first.status, first.out) == (0, b"left\n")
    assert sh("ls -A").out == b""


def test_it_has_three_descriptors_and_no_more() -> None:
    """Among those of the guard is the one that answers: who has it could say what it was not."""
    assert sh("cat; for f in 3 4 5 6 7 8 9; do (: <&$f) && echo $f; done 2> /dev/null").out == b""


def test_nothing_gets_out_or_in(way: Way) -> None:
    with Arena() as arena:
        arena.folder.chmod(0o755)
        told = arena.prepare()
        commands = [
            f"cat {told['secret']}; ls {told['folder']}",
            f"echo ${VARIABLE}; env; cat /proc/*/environ; for f in 3 4 5 6 7 8 9; do cat <&$f; done",
            f"echo x > {told['target']}; mkdir {told['target']}; ln -s {told['folder']} in; cat in/*",
            f"for folder in /dev/shm /tmp /usr; do echo x > $folder/{told['shared']}; done",
            f"kill -9 {told['victim']}; kill -9 -1",
        ]
        if shutil.which("bash"):
            commands += [f"bash -c 'echo x > /dev/{kind}/127.0.0.1/{told[kind]}'" for kind in ("tcp", "udp")]
        for command in commands:
            done = sh(command)
            said = (done.out + done.err).decode(errors="replace")
            assert arena.effects(SandboxResult("ok", value=said), []) == [], command
        other = sh(f"cat {told['secret']}")
        assert (b"No such file" if way == "namespaces" else b"Permission denied") in other.err
    assert not Path("/tmp", told["shared"]).exists()
    assert not Path("/usr", told["shared"]).exists()


def test_what_it_uses_is_bounded() -> None:
    large = sh("head -c 9000000 /usr/bin/* > big; ls -l big | cut -d' ' -f5")
    assert int(large.out) <= BOUNDS.file
    assert sh("yes").ended == "output"
    assert len(sh("yes").out) == BOUNDS.output
    assert sh("yes >&2").ended == "output"
    assert sh("sleep 60", Bounds(seconds=0.1)).ended == "time"
    assert sh(":(){ :|:& };:", Bounds(seconds=0.5, processes=8)).ended in ("time", "exit", "output")
    if shutil.which("perl"):
        memory = "perl -e '$x = \"a\" x (200 << 20); print length $x'"
        assert sh(memory).out == b"209715200"
        assert sh(memory, Bounds(memory=100 << 20)).out == b""
        spin = sh("perl -e '1 while 1'", Bounds(seconds=1.2))
        assert spin.ended == "time" or spin.status > 128


def test_the_folder_is_bounded_as_a_whole_in_namespaces(way: Way) -> None:
    if way == "namespaces":
        many = sh("for i in 1 2 3 4 5 6 7 8; do head -c 900000 /usr/bin/* > f$i; done; cat * | wc -c")
        assert 0 < int(many.out) <= BOUNDS.disk


def test_a_file_that_is_too_large_is_named_and_not_handed_out() -> None:
    found = sh("head -c 65537 /usr/bin/* > b; echo x > a", BOUNDS, {}, "a", "b")
    assert (found.ended, found.too_large, found.files) == ("size", "b", {})


def test_only_plain_files_come_out() -> None:
    found = sh("ln -s /etc/passwd a; mkfifo b; mkdir c; echo x > d", BOUNDS, {}, "a", "b", "c", "d")
    assert found.files == {"d": b"x\n"}
    for name in ("../x", "a/b", "", "..", "a\0"):
        with pytest.raises(ValueError, match="no plain name"):
            sh("true", BOUNDS, {}, name)
        with pytest.raises(ValueError, match="no plain name"):
            sh("true", BOUNDS, {name: b""})


def test_nothing_outlives_it() -> None:
    folder = module.outside()
    for ending in ("true", "sleep 60"):
        sh(f"(setsid sleep 61 &) ; setsid sleep 61 & {ending}", Bounds(seconds=0.5))
        left = [one for one in Path("/proc").glob("[0-9]*/cmdline") if _is(one, b"sleep\x0061\0")]
        assert left == []
        assert list(folder.iterdir()) == []


def _is(place: Path, line: bytes) -> bool:
    try:
        return place.read_bytes() == line
    except OSError:
        return False


def test_many_at_once_do_not_meet() -> None:
    found: dict[int, JailResult] = {}

    def one(number: int) -> None:
        found[number] = sh("sleep 0.1; ls -A; cat n", BOUNDS, {"n": str(number).encode()})

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: done.out for number, done in found.items()} == {n: f"n\n{n}".encode() for n in range(8)}


def test_a_server_that_ended_is_replaced_and_a_fork_has_its_own() -> None:
    before = module._server()
    before.process.kill()
    before.process.wait()
    assert sh("echo on").out == b"on\n"
    mine = module._server().process.pid
    child = os.fork()
    if not child:
        same = module._server().process.pid == mine
        os._exit(int(same or sh("echo on").out != b"on\n"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert module._server().process.pid == mine


def test_a_process_that_was_killed_leaves_no_folder() -> None:
    code = (
        "import os, signal; from refork.sandbox import jailed\n"
        "print(jailed.outside(), jailed._server().process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout
    folder, server = told.split()
    while Path(f"/proc/{server}").exists():
        time.sleep(0.01)
    assert not Path(folder).exists()


def test_what_cannot_be_held_back_does_not_run(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_refused", {way: "not here"})
    with pytest.raises(CannotDo, match=f"cannot hold sh back .*{way}: not here"):
        sh("true")
    if way == "landlock":
        monkeypatch.setattr(module, "_refused", {})
        monkeypatch.setattr(module, "NEWEST", 2)
        with pytest.raises(CannotDo, match=r"Landlock version 2; 3 is the first(.|\n)*--unconfined"):
            sh("true")
        monkeypatch.setattr(module, "NEWEST", 99)
    monkeypatch.setattr(module, "_refused", {})
    with pytest.raises(CannotDo, match="cannot be started"):
        jailed(["/usr/bin/none-such"], SYSTEM)
    assert module._refused == {}, "a program that is not there says nothing of the system"


def test_to_go_without_is_asked_for_and_told(
    way: Way, readable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with module.unconfined(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sh("echo held").out == b"held\n", "who is held is not told of"
    monkeypatch.setattr(module, "_refused", {way: "not here"})
    with module.unconfined(False), pytest.raises(CannotDo, match="--unconfined"):
        sh("true")
    with (
        module.unconfined(True),
        pytest.warns(UnconfinedWarning, match=r"sh is unconfined .* files, network"),
    ):
        assert sh(f"cat {readable}").out == b"of anyone"
    with pytest.raises(CannotDo):
        sh("true")


def test_ways_are_tried_in_order_and_those_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(request: dict[str, object], *rest: object) -> JailResult | str:
        asked.append(request["way"])
        return "no" if request["way"] == "namespaces" else JailResult(0, "exit", b"", b"")

    monkeypatch.setattr(module, "_asked", answer)
    monkeypatch.setattr(module, "_refused", {})
    with only("namespaces", "landlock"):
        for _ in range(2):
            assert sh("true").status == 0
    assert asked == ["namespaces", "landlock", "landlock"]


def test_links_are_followed_to_what_they_are(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "deep").mkdir(parents=True)
    (real / "deep" / "file").touch()
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one" / "deep")
    found = exposed([tmp_path / "two" / ".." / "deep" / "file", tmp_path / "two"])
    assert found.paths == (str(real / "deep"),)
    assert found.links == (str(tmp_path / "one"), str(tmp_path / "two"))
    (tmp_path / "loop").symlink_to("loop")
    assert exposed([tmp_path / "loop", tmp_path / "gone"]).paths == ()
