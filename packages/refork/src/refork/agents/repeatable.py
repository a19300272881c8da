"""What a Python program loads as it begins, so that its clock and its chance can be had again.

The standard library alone, loaded by its file: the program's environment need not have Refork. While a run
is recorded the clock is the real one, and its readings are written down; chance comes from the run's seed.
When it is run again, readings and chance are the recorded ones, up to the point of a fork. From there on the
clock goes on at its own pace, and chance is the draw's own. Both belong to a *line of work*: the program's
main one, a thread, a task of asyncio, a call in a pool. So lines may run in any order. What the network,
passwords and processes need (clocks that only measure, and entropy of the system) stays real.
"""

# Every Python process of the program loads this, and pathlib would take the longest.
# ruff: noqa: PTH118, PTH119, PTH123

from __future__ import annotations

import _random
import contextvars
import datetime
import functools
import gc
import hashlib
import itertools
import json
import mmap
import os
import random
import struct
import sys
import threading
import time
from collections import deque
from typing import Any, Final
from weakref import WeakKeyDictionary

from refork.agents.on_import import when_imported

#: Names the run's folder; by the second a process tells its children who it is.
VARIABLE: Final = "REFORK_REPEATABLE"
PARENT: Final = "REFORK_PROCESS"
#: Names in the folder: what the run is; where readings are and claims of processes; where the point is told.
SETTINGS, READINGS, CLAIMS, POINT = "settings.json", "readings", "claims", "point"
#: What is told at the point: that it was reached, what the clock is from then on, and the real one then.
MARK: Final = struct.Struct("<qqq")
#: Readings that one process writes down.
MOST: Final = 200_000
#: Callers that have the real clock and the system's entropy: what they do is checked by others.
_REAL: Final = frozenset({
    "asyncio", "selectors", "socket", "ssl", "tempfile", "threading", "queue", "concurrent", "subprocess",
    "multiprocessing", "importlib", "urllib3", "httpcore", "h11", "h2", "anyio", "sniffio", "uvloop",
    "OpenSSL", "cryptography", "nacl", "Crypto", "Cryptodome", "paramiko", "jwt", "jose", "authlib",
    "oauthlib", "msal", "azure", "boto3", "botocore", "s3transfer", "requests_aws4auth",
    "aws_requests_auth", "opentelemetry", "grpc",
})  # fmt: skip
_REAL_WITHIN: Final = ("google.auth", "google.oauth2")
#: Callers in whose place it is asked who called them.
_ON_BEHALF: Final = frozenset({__name__, "random", "secrets", "uuid", "contextlib", "functools"})
#: As they are before anything is put in their place.
_now_ns, _entropy = time.time_ns, os.urandom


class _Line:
    """A line of work. Its name tells whose child it is, what it runs, and the how manieth of these."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._begun: dict[str, int] = {}

    def child(self, what: str) -> _Line:
        count = self._begun[what] = self._begun.get(what, -1) + 1
        return _Line(f"{self.name}/{what}.{count}")


_LINE: Final[contextvars.ContextVar[_Line | None]] = contextvars.ContextVar("refork_line", default=None)
_OF_THREADS: Final[WeakKeyDictionary[threading.Thread, _Line]] = WeakKeyDictionary()


class _Process:
    """This process of the run: its name, seeds and clock."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, SETTINGS), encoding="utf-8") as file:
            told = json.load(file)
        self.recording = told["recording"]
        self.seed, self.draw = bytes.fromhex(told["seed"]), bytes.fromhex(told["draw"])
        self.began: int = told["began"]
        self.now: int = told["now"]
        with open(os.path.join(folder, POINT), "rb") as file:
            self._point = mmap.mmap(file.fileno(), MARK.size, access=mmap.ACCESS_READ)
        command = [os.path.basename(sys.executable), *getattr(sys, "orig_argv", getattr(sys, "argv", []))[1:]]
        self.begin([os.environ.get(PARENT, ""), *map(_steady, command)])

    def begin(self, words: list[str]) -> None:
        """Be the process of these words: the first of the run that is, the second, and so on."""
        name, count = hashlib.blake2b(json.dumps(words).encode(), digest_size=8).hexdigest(), 0
        while not self._claims(f"{name}.{count}"):
            count += 1
        self.name = os.environ[PARENT] = f"{name}.{count}"
        self.main = _Line("main")
        self.forks, self._taken = 0, dict[tuple[str, str, bool], int]()
        self._sites: dict[tuple[str, str], int] = {}
        self._numbers = itertools.count()
        self._file: tuple[int, int, int] | None = None
        self._known: dict[tuple[str, str], deque[int]] = {}
        self._count, self._offset, self._last = 0, 0, 0
        self._told = False
        if self.recording:
            self._write(f"began\t{_now_ns()}\n")
        else:
            self._read()

    def _claims(self, name: str) -> bool:
        try:
            os.close(
                os.open(os.path.join(self.folder, CLAIMS, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            )
        except FileExistsError:
            return False
        except OSError:
            return True  # the folder cannot be written: it is the first of its kind
        return True

    # -- chance -----------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether the point of a fork was reached."""
        return self._point[0] != 0

    def digest(self, what: str, length: int = 32) -> bytes:
        """Bytes that depend on what they are for, the line of work and how often it asked for such."""
        line, behind = line_now().name, self.behind
        key = what, line, behind
        count = self._taken[key] = self._taken.get(key, -1) + 1
        told = json.dumps([self.name, what, line, count]).encode()
        return hashlib.shake_256((self.draw if behind else self.seed) + told).digest(length)

    # -- the clock --------------------------------------------------------------------------------

    def clock(self, frame: Any) -> int:
        """Nanoseconds since 1970, for the code of a frame."""
        real = _now_ns()
        module = frame.f_globals.get("__name__", "")
        if is_real(module):
            return real
        key = line_now().name, f"{module}.{frame.f_code.co_name}"
        if self.recording:
            self._note(key, real)
            return real
        reached, at, then = MARK.unpack(self._point[: MARK.size])
        if reached:
            # Clocks that measure are the same in all processes of a machine.
            self._last = max(self._last, at + time.monotonic_ns() - then)
            return self._last
        known = self._known.get(key)
        if known:
            given = known.popleft()
            self._offset = given - real
            self._last = max(self._last, given)
            return given
        # The program looks more often than it did: it sees the clock go on.
        self._last = max(self._last, real + self._offset)
        return self._last

    def _note(self, key: tuple[str, str], real: int) -> None:
        self._count += 1
        if self._count > MOST:
            self._lost(f"only the first {MOST:,} are kept")
            return
        number, new = self._sites.get(key), ""
        if number is None:
            number = self._sites[key] = next(self._numbers)  # in one step: threads come here at once
            new = f"site\t{number}\t{key[0]}\t{key[1]}\n"
        self._write(f"{new}{number}\t{real}\n")

    def _write(self, text: str) -> None:
        """At once: the program may end in any way. Where it closed what is not its own, it is opened anew."""
        try:
            if self._file is not None:
                try:
                    found = os.fstat(self._file[0])
                    if (found.st_dev, found.st_ino) != self._file[1:]:
                        self._file = None
                except OSError:
                    self._file = None
            if self._file is None:
                place = os.path.join(self.folder, READINGS, self.name)
                opened = os.open(place, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
                found = os.fstat(opened)
                self._file = opened, found.st_dev, found.st_ino
            os.write(self._file[0], text.encode("utf-8", "replace"))
        except OSError as error:
            self._lost(str(error))

    def _lost(self, why: str) -> None:
        """Say once that looks at the clock are not written down: the program goes on, a replay may differ."""
        if not self._told:
            self._told = True
            sys.stderr.write(f"refork: looks at the clock are not all kept: {why}\n")

    def _read(self) -> None:
        self._offset = self.began - self.now
        sites: dict[str, tuple[str, str]] = {}
        try:
            with open(os.path.join(self.folder, READINGS, self.name), encoding="utf-8") as file:
                for line in file:
                    first, *rest = line.rstrip("\n").split("\t")
                    if first == "began":
                        self._offset = int(rest[0]) - _now_ns()
                    elif first == "site":
                        sites[rest[0]] = rest[1], rest[2]
                    else:
                        self._known.setdefault(sites[first], deque()).append(int(rest[0]))
        except (OSError, ValueError, IndexError, KeyError):
            pass  # it was not there when it was recorded, or was killed in the midst of a line


_OURS: list[_Process] = []


def _steady(word: str) -> str:
    """A word of a command without what is another one each time."""
    if "multiprocessing" in word:
        return " ".join("".join(" " if letter.isdigit() else letter for letter in word).split())
    temporary = [one for one in (os.environ.get("TMPDIR"), "/tmp", "/var/folders") if one]
    return "a temporary file" if any(word.startswith(one.rstrip("/") + "/") for one in temporary) else word


def line_now() -> _Line:
    """The line of work that this is."""
    line = _LINE.get()
    if line is None:
        line = _OF_THREADS.get(threading.current_thread()) or _OURS[0].main
        _LINE.set(line)
    return line


def line_name() -> str:
    """The name of this line of work; empty where no run is repeatable."""
    return line_now().name if _OURS else ""


def is_real(module: str) -> bool:
    """Whether a module is one that has the real clock and entropy."""
    return module.partition(".")[0] in _REAL or module.startswith(_REAL_WITHIN)


def _for_real(depth: int = 2) -> bool:
    """Whether the caller, or whoever it acts for, is such a one."""
    frame: Any = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") in _ON_BEHALF:
        frame = frame.f_back
    return frame is not None and is_real(frame.f_globals.get("__name__", ""))


def _of(function: Any) -> str:
    """What a function is called, whatever is wrapped around it."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


# -- what is put in its place ---------------------------------------------------------------------


def hold() -> None:
    """Put all of it in its place, where this process is of a run that asks for it. Never ends a program."""
    folder = os.environ.get(VARIABLE)
    if not folder or _OURS:
        return
    try:
        _OURS.append(_Process(folder))
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"refork: clock and chance of this process are not repeatable: {error!r}\n")
        return
    _hold_lines()
    _hold_chance()
    _hold_clock()
    when_imported("uuid", _uuid)
    when_imported("numpy.random", _numpy)


def _hold_lines() -> None:
    start = threading.Thread.start

    @functools.wraps(start)
    def starts(thread: threading.Thread) -> None:
        target = getattr(thread, "_target", None)
        _OF_THREADS[thread] = line_now().child(type(thread).__qualname__ if target is None else _of(target))
        start(thread)

    threading.Thread.start = starts  # type: ignore[method-assign,assignment]
    when_imported("asyncio.base_events", _asyncio)
    when_imported("concurrent.futures.thread", _pools)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_forks, after_in_child=_forked)


def _forks() -> None:
    _OURS[0].forks += 1


def _forked() -> None:
    ours = _OURS[0]
    _LINE.set(None)
    _OF_THREADS.clear()
    ours.begin([ours.name, "fork", str(ours.forks)])


def _asyncio(module: Any) -> None:
    create = module.BaseEventLoop.create_task

    @functools.wraps(create)
    def creates(loop: Any, coro: Any, **named: Any) -> Any:
        # A task has a copy of the context in which it is made.
        before = _LINE.set(line_now().child(_of(coro)))
        try:
            return create(loop, coro, **named)
        finally:
            _LINE.reset(before)

    module.BaseEventLoop.create_task = creates


def _pools(module: Any) -> None:
    submit = module.ThreadPoolExecutor.submit

    @functools.wraps(submit)
    def submits(pool: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        context = getattr(function, "__self__", None)
        if isinstance(context, contextvars.Context):
            # As packages carry their context into a thread: there the line of the caller would go on.
            context.run(_LINE.set, line_now().child(_of(args[0]) if args else "run"))
            return submit(pool, function, *args, **named)
        line = line_now().child(_of(function))

        def runs(*given: Any, **more: Any) -> Any:
            before = _LINE.set(line)
            try:
                return function(*given, **more)
            finally:
                _LINE.reset(before)

        return submit(pool, runs, *args, **named)

    module.ThreadPoolExecutor.submit = submits


# -- chance ---------------------------------------------------------------------------------------


class _Stream(_random.Random):
    """One generator's numbers in one line of work."""

    gauss_next: float | None = None


class _Unseeded:
    """A generator that nobody gave a seed: in each line of work it has numbers of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._streams: dict[tuple[str, str, bool], _Stream] = {}

    def stream(self) -> _Stream:
        ours = _OURS[0]
        key = ours.name, line_now().name, ours.behind
        found = self._streams.get(key)
        if found is None:
            found = self._streams[key] = _Stream(int.from_bytes(ours.digest(self._name), "big"))
        return found


def _urandom(size: int) -> bytes:
    if not isinstance(size, int) or size < 0 or _for_real():
        return _entropy(size)
    return _OURS[0].digest("urandom", size)


def _hold_chance() -> None:
    """Every generator without a seed, the system's entropy as Python hands it out, and what is made of it."""
    system, module = vars(os), vars(random)
    system["urandom"] = module["_urandom"] = _Builtin(_urandom, _entropy)
    kind = module["Random"]
    kind.seed, kind.getstate, kind.setstate = _seed, _getstate, _setstate
    kind.random, kind.getrandbits, kind.gauss_next = _random_of, _bits_of, property(_next_gauss, _set_gauss)
    for name in ("seed", "random", "getrandbits", "getstate", "setstate"):
        module[name] = getattr(module["_inst"], name)
    module["seed"]()


#: A generator as it was, and without what Python adds to it.
_old: Final[dict[str, Any]] = dict(vars(random.Random))
_plain: Final[Any] = _random.Random


def _seed(self: Any, a: Any = None, version: int = 2) -> None:
    held = a is None and not _for_real()
    self.__dict__["_refork"] = _Unseeded(f"{line_now().name} random") if held else None
    if held:
        self.gauss_next = None
    else:
        _old["seed"](self, a, version)


def _stream(self: Any) -> Any:
    held = self.__dict__.get("_refork")
    return self if held is None else held.stream()


def _own(self: Any) -> None:
    """Make a generator an ordinary one: its whole state is asked for, or given."""
    now = _stream(self)
    if now is not self:
        self.__dict__["_refork"] = None
        _plain.setstate(self, now.getstate())
        self.gauss_next = now.gauss_next


def _getstate(self: Any) -> Any:
    _own(self)
    return _old["getstate"](self)


def _setstate(self: Any, state: Any) -> None:
    _own(self)
    _old["setstate"](self, state)


def _random_of(self: Any) -> Any:
    return _plain.random(_stream(self))


def _bits_of(self: Any, k: int) -> Any:
    return _plain.getrandbits(_stream(self), k)


def _next_gauss(self: Any) -> Any:
    one = _stream(self)
    return self.__dict__.get("gauss_next") if one is self else one.gauss_next


def _set_gauss(self: Any, value: float | None) -> None:
    one = _stream(self)
    if one is self:
        self.__dict__["gauss_next"] = value
    else:
        one.gauss_next = value


def _uuid(module: Any) -> None:
    """Of the machine's own library, which reads the real clock, to that of Python."""
    for name in ("_generate_time_safe", "_UuidCreate"):
        if hasattr(module, name):
            setattr(module, name, None)


def _numpy(module: Any) -> None:
    """What numpy makes without a seed is made of ours; behind the point it is made anew."""

    def afresh(one: Any) -> None:
        bits = one.bit_generator
        bits.state = type(bits)(module.SeedSequence(_number(16))).state

    mtrand, default = module.mtrand, module.default_rng
    state, old = mtrand.RandomState, mtrand._rand
    new = _switching(state, lambda one: state.seed(one, _number()), ("seed", "set_state"))(_number())
    for place in (mtrand, module):
        for name, value in list(vars(place).items()):
            if getattr(value, "__self__", None) is old:
                setattr(place, name, getattr(new, name))
    mtrand._rand = new
    generator = _switching(module.Generator, afresh)

    def default_rng(seed: Any = None) -> Any:
        return default(seed) if seed is not None else generator(default(_number(16)).bit_generator)

    module.default_rng = _Builtin(default_rng, default)


def _number(size: int = 4) -> int:
    return int.from_bytes(_OURS[0].digest("numpy", size), "big")


def _switching(base: Any, anew: Any, given: tuple[str, ...] = ()) -> Any:
    """A class whose methods look first whether the point was reached; ``given``: by which it gets a seed."""

    def method(name: str) -> Any:
        old = getattr(base, name)

        def draws(self: Any, *args: Any, **named: Any) -> Any:
            if not self._refork and (name in given or _OURS[0].behind):
                self._refork = True
                if name not in given:
                    anew(self)
            return old(self, *args, **named)

        return functools.update_wrapper(draws, old)

    names = [name for name in vars(base) if name[0] != "_" and callable(getattr(base, name))]
    made = {name: method(name) for name in names}
    return type(base.__name__, (base,), {**made, "_refork": False, "__module__": base.__module__})


# -- the clock ------------------------------------------------------------------------------------


class _Builtin:
    """What stands in the place of a builtin function: in the body of a class, too, it is no method."""

    def __init__(self, call: Any, of: Any) -> None:
        self._call, self.__wrapped__ = call, of
        self.__name__, self.__doc__, self.__module__ = of.__name__, of.__doc__, of.__module__

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._call(*args, **named)

    def __reduce__(self) -> str:
        return str(self.__name__)


def _caller() -> Any:
    """The frame of the program's code: behind this function, what is called, and what it is called by."""
    return sys._getframe(3)


def _hold_clock() -> None:
    ours, module = _OURS[0], vars(time)
    old: dict[str, Any] = dict(module)

    def put(name: str, call: Any) -> None:
        if name in old:
            module[name] = _Builtin(call, old[name])

    def of_seconds(name: str) -> Any:
        given = old[name]
        return lambda secs=None: given(ours.clock(_caller()) / 1e9 if secs is None else secs)

    def of_fields(name: str) -> Any:
        given, local, count = old[name], old["localtime"], int(name == "strftime")
        return lambda *args: given(
            *args, *(() if len(args) > count else (local(ours.clock(_caller()) / 1e9),))
        )

    def of_clocks(name: str, scale: Any) -> Any:
        given: Any = old.get(name)
        at = old.get("CLOCK_REALTIME")
        return lambda clock: scale(ours.clock(_caller())) if clock == at else given(clock)

    put("time", lambda: ours.clock(_caller()) / 1e9)
    put("time_ns", lambda: ours.clock(_caller()))
    for name in ("localtime", "gmtime", "ctime"):
        put(name, of_seconds(name))
    for name in ("asctime", "strftime"):
        put(name, of_fields(name))
    put("clock_gettime", of_clocks("clock_gettime", lambda ns: ns / 1e9))
    put("clock_gettime_ns", of_clocks("clock_gettime_ns", int))
    _hold_datetime(ours)


def _hold_datetime(ours: _Process) -> None:
    """``datetime.now`` and ``utcnow``; ``today`` asks ``time.time``. The class stays the one that it is."""

    def at(cls: Any, ns: int, tz: Any) -> Any:
        return cls.fromtimestamp(ns // 10**9, tz).replace(microsecond=ns % 10**9 // 1000)

    def now(cls: Any, tz: Any = None) -> Any:
        return at(cls, ours.clock(sys._getframe(1)), tz)

    def utcnow(cls: Any) -> Any:
        return at(cls, ours.clock(sys._getframe(1)), datetime.UTC).replace(tzinfo=None)

    kind: Any = datetime.datetime
    for name, function in (("now", now), ("utcnow", utcnow)):
        made = classmethod(function)
        try:
            setattr(kind, name, made)  # where datetime is written in Python
            continue
        except TypeError:
            pass
        # A class written in C cannot be set, but its dictionary is one like any other.
        places = [one for one in gc.get_referents(kind.__dict__) if type(one) is dict]
        if len(places) == 1 and name in places[0]:
            places[0][name] = made
        else:
            sys.stderr.write(f"refork: datetime.{name} of this Python cannot be made repeatable\n")
    try:
        import ctypes

        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    except (ImportError, AttributeError):
        pass  # nobody has looked for these names before us
