import os
import signal
import threading

import pytest

from refork.interrupt import Interrupt


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_is_noted_and_the_second_stops():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as stop:
        assert not stop.asked
        ctrl_c()
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    assert signal.getsignal(signal.SIGINT) is before


def test_off_the_main_thread_it_does_nothing():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with Interrupt() as stop:
            seen.append(stop.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is before
