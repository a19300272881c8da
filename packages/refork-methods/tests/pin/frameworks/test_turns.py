import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from pin.frameworks.histories import call, result
from refork.errors import BadInput
from refork_methods.pin.frameworks.loop import finish
from refork_methods.pin.frameworks.turns import calls_of, fresh_id, join_seams, split_seams, turns


def test_results_of_a_round_stand_together():
    said = [call("a", "b"), result("a"), result("b"), {"role": "user", "content": "x"}, result("c")]
    assert [len(turn) for turn in turns(said)] == [1, 2, 1, 1]


def test_seams_come_apart_again():
    for parts in (["a", "", "c"], [""], ["", ""]):
        assert split_seams(join_seams(parts), len(parts)) == parts
    assert split_seams("all \u2063of \u2063it", 2) == ["all of it", ""]


def test_an_id_that_is_taken_is_numbered():
    assert fresh_id("a", []) == "a"
    assert fresh_id("a", ["a", "a.2"]) == "a.3"


def test_arguments_are_text():
    said = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    assert calls_of(said) == [("a", "f", '{"x": 1}')]
    with pytest.raises(BadInput, match="names no function"):
        calls_of({"tool_calls": ["f"]})


def test_work_is_finished_inside_a_loop_and_outside_with_its_context():
    mark = contextvars.ContextVar("mark", default="none")

    async def work():
        await asyncio.sleep(0)
        return mark.get()

    async def inside():
        mark.set("inside")
        return finish(work())

    assert asyncio.run(inside()) == "inside"
    assert finish(work()) == "none"

    async def broken():
        raise BadInput("no")

    async def nested():
        return finish(work())

    with pytest.raises(RuntimeError, match="await the work instead"):
        finish(nested())

    async def inside_broken():
        return finish(broken())

    for run in (lambda: finish(broken()), lambda: asyncio.run(inside_broken())):
        with pytest.raises(BadInput, match="no"):
            run()


def test_all_work_is_done_in_one_loop():
    async def where():
        return id(asyncio.get_running_loop()), await asyncio.to_thread(threading.get_ident)

    async def inside():
        return finish(where())

    assert finish(where())[0] == finish(where())[0] == asyncio.run(inside())[0]


def test_the_loop_is_closed_at_the_end_without_a_word():
    script = (
        "import asyncio, sys\n"
        "from refork_methods.pin.frameworks.loop import finish\n"
        "async def work(): return await asyncio.to_thread(lambda: 'done')\n"
        "print(finish(work()))\n"
    )
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", script]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "done\n", "")


# Newer Pythons warn of every fork of a process with threads; this test is about just that.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_gets_a_loop_of_its_own():
    def work():
        return finish(asyncio.sleep(0, "done"))

    assert work() == "done"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, work().encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"done"
    os.close(read)
