"""Scripts that run in forks of a process which has read the libraries."""

import os
import subprocess
import textwrap
import time

import pytest

from support.toolbox import load

warm = load("warm")

STORY = textwrap.dedent(
    """\
    import json, os, sys
    sys.stderr.write("to the error stream\\n")
    told = [sys.argv[1:], os.getcwd(), os.environ.get("WARM"), "tomllib" in sys.modules]
    print(json.dumps([*told, sys.stdin.read(), __name__]))
    sys.exit(int(sys.argv[1]))
    """
)


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """What starts a script; only a small library is read before."""
    folder = tmp_path_factory.mktemp("warm")
    copy = folder / "warm.py"
    source = (load("run_docs").ROOT / "tools/warm.py").read_text()
    start, end = source.index("LIBRARIES = ("), source.index("LARGEST =")
    copy.write_text(f'{source[:start]}LIBRARIES = ("tomllib",)\n{source[end:]}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm, "__file__", str(copy))
        with warm.Warm(folder, dict(os.environ)) as server:
            yield server.launch()


def run(launch, script, *arguments, **settings):
    return subprocess.run(
        [*launch, script, *arguments], check=False, capture_output=True, text=True, timeout=900, **settings
    )


def test_a_script_has_its_own_arguments_folder_environment_streams_and_status(launch, tmp_path):
    script = tmp_path / "story.py"
    script.write_text(STORY)
    done = run(launch, script, "3", "b c", cwd=tmp_path, env={"WARM": "yes"}, input="said")
    assert done.returncode == 3, done.stderr
    assert done.stdout == f'[["3", "b c"], "{tmp_path}", "yes", true, "said", "__main__"]\n'
    assert done.stderr == "to the error stream\n"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("x = 1", 0, ""),
        ("import sys; sys.exit('in words')", 1, "in words"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, ""),
        ("import atexit; atexit.register(lambda: print('last', file=__import__('sys').stderr))", 0, "last"),
        (
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('x'))).start()",
            0,
            "",
        ),
    ],
)
def test_the_ways_to_end(launch, tmp_path, body, status, says):
    script = tmp_path / "end.py"
    script.write_text(body)
    done = run(launch, script)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    assert done.stdout == ("x\n" if "Thread" in body else "")


def test_nothing_of_one_script_is_seen_by_the_next(launch, tmp_path):
    script = tmp_path / "mark.py"
    script.write_text(
        "import os, string\nprint(hasattr(string, 'mark'), 'M' in os.environ)\n"
        "string.mark = 1\nos.environ['M'] = ''"
    )
    assert [run(launch, script).stdout for _ in range(2)] == ["False False\n"] * 2


def test_what_was_asked_for_dies_with_who_asks(launch, tmp_path):
    script = tmp_path / "long.py"
    script.write_text("import os, sys, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
    with subprocess.Popen([*launch, script], stdout=subprocess.PIPE, text=True) as asking:
        worker = int(asking.stdout.readline())
        os.kill(worker, 0)
        asking.kill()
        assert asking.stdout.read() == ""  # ends when the last that writes there has ended
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("still there")


def test_an_installed_script_becomes_a_command(launch, tmp_path):
    script, command = tmp_path / "story.py", tmp_path / "story"
    script.write_text("import sys; print(sys.argv[1:])")
    server = warm.Warm(tmp_path, {})
    server.launch = lambda: launch
    server.command(script, command)
    assert subprocess.check_output([command, "a b", "c"], text=True) == "['a b', 'c']\n"


def test_a_server_that_ends_early_says_so(tmp_path, monkeypatch):
    broken = tmp_path / "warm.py"
    broken.write_text("raise SystemExit(7)")
    monkeypatch.setattr(warm, "__file__", str(broken))
    with warm.Warm(tmp_path, dict(os.environ)) as server, pytest.raises(RuntimeError, match="status 7"):
        server.launch()
