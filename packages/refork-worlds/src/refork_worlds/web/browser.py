"""One headless Chromium of the process, in a thread of its own, shared by every episode.

Playwright's synchronous interface belongs to the thread that opened it and refuses a thread with a running
event loop. So one thread owns it, and whoever asks (a test, the command line, a worker, a coroutine) waits
for its answer.
"""

from __future__ import annotations

import atexit
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar, final

from refork.errors import CannotDo, MissingExtra, install_command
from refork.settings import variable

T = TypeVar("T")

#: Where a Chromium is named by hand.
VARIABLE: Final = "REFORK_CHROMIUM"
#: Names of it on the search path.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: Flags without which a browser in a container does not start, or calls home.
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def install() -> str:
    """What to run where there is no browser."""
    return (
        f"{install_command('web')} and: playwright install chromium "
        f"(or install chromium, or set {VARIABLE} to its path)"
    )


def executable(given: str | None = None) -> str | None:
    """The Chromium to run: the given path, the environment's, one on the search path; None: playwright's own.

    Raises:
        CannotDo: the path that was named holds no program.
    """
    named = given or variable(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise CannotDo(f"there is no browser at {named!r}", where="web", hint=install())
        return found
    return next((path for path in map(shutil.which, NAMES) if path), None)


def missing(given: str | None = None) -> str | None:
    """Why no browser can be opened here, and what to install; None where one can."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: F401
    except ImportError:
        return f"playwright is not installed; {install()}"
    try:
        path = executable(given)
    except CannotDo as error:
        return str(error)
    own = None if path else _own()
    return None if path or own else f"no Chromium was found; {install()}"


def _own() -> str | None:
    """Playwright's own Chromium, if it was downloaded: asked in the thread that may ask."""
    try:
        path = str(_thread().call(lambda play: play.chromium.executable_path))
    except CannotDo:
        return None
    return path if os.path.exists(path) else None  # noqa: PTH110


@final
class _Owner:
    """The thread that owns playwright: it runs what it is handed, one after the other."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.browsers: dict[tuple[str, ...], Any] = {}
        self._jobs: SimpleQueue[tuple[Callable[[Any], Any], Future[Any]] | None] = SimpleQueue()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="refork-web", daemon=True)
        self._thread.start()
        self._ready.result()

    def call(self, job: Callable[[Any], T]) -> T:
        """The answer of a job, run with playwright in its thread; its error is raised here."""
        answer: Future[T] = Future()
        self._jobs.put((job, answer))
        return answer.result()

    def stop(self) -> None:
        """Close every browser and end the thread."""
        self._jobs.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        try:
            from playwright.sync_api import sync_playwright

            play = sync_playwright().start()
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        while (job := self._jobs.get()) is not None:
            work, answer = job
            try:
                answer.set_result(work(play))
            except BaseException as error:
                answer.set_exception(error)
        for browser in self.browsers.values():
            browser.close()
        play.stop()


_LOCK = threading.Lock()
_OWNERS: list[_Owner] = []


def _thread() -> _Owner:
    """The owner of this process; a fork of the process starts its own.

    Raises:
        MissingExtra: playwright is not installed.
    """
    with _LOCK:
        if _OWNERS and _OWNERS[0].process == os.getpid():
            return _OWNERS[0]
        try:
            owner = _Owner()
        except ImportError as error:
            raise MissingExtra("playwright", "web") from error
        _OWNERS[:] = [owner]
        return owner


def in_browser(job: Callable[[Any], T], path: str | None = None, flags: Sequence[str] = ()) -> T:
    """The answer of a job that takes the shared browser, run in the browser's thread.

    ``flags``: more of Chromium's own; a browser with other flags is another one.

    Raises:
        MissingExtra: playwright is not installed.
        CannotDo: there is no Chromium, or it does not start.
    """
    named = executable(path)

    def work(play: Any) -> T:
        browsers = _OWNERS[0].browsers
        key = (named or "", *flags)
        if key not in browsers or not browsers[key].is_connected():
            from playwright.sync_api import Error

            try:
                browsers[key] = play.chromium.launch(executable_path=named, args=[*FLAGS, *flags])
            except Error as error:
                first = str(error).strip().splitlines()[0]
                raise CannotDo(f"Chromium does not start: {first}", where="web", hint=install()) from error
        return job(browsers[key])

    return _thread().call(work)


@atexit.register
def close() -> None:
    """Close the browser; the next page opens a new one."""
    with _LOCK:
        owners = [owner for owner in _OWNERS if owner.process == os.getpid()]
        _OWNERS.clear()
    for owner in owners:
        owner.stop()
