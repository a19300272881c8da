"""What a process spends its time on, as sections that open and close; nothing at all while nobody watches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar, final

from refork.types import Json

#: What a section is: the run itself, one of its stages, an arm of draws, a unit that a worker did, a call of
#: a model, a step of a world, a transaction; ``time`` is only timed, and no span.
Kind = Literal["run", "stage", "group", "unit", "model", "world", "store", "time"]

T = TypeVar("T")


@final
class Section:
    """One piece of work. It may pause: ``spent`` and ``own`` are the nanoseconds in which it ran.

    ``own`` leaves out what ran inside it. ``marks`` is the watchers' own, ``parent`` what it lies in.
    """

    __slots__ = (
        "_inner", "_since", "attributes", "began", "error", "kind", "marks", "name", "own", "parent", "runs",
        "spent",
    )  # fmt: skip

    def __init__(self, name: str, kind: Kind, parent: Section | None, began: int, attributes: Json) -> None:
        self.name = name
        self.kind = kind
        self.parent = parent
        self.began = began
        self.attributes = attributes
        self.error: BaseException | None = None
        self.marks: dict[str, Any] = {}
        self.spent = 0
        self.own = 0
        self.runs = 0
        self._since = 0
        self._inner = 0

    def add(self, name: str, amount: float) -> None:
        """Add to an attribute that counts."""
        self.attributes[name] = self.attributes.get(name, 0) + amount

    def up(self, kind: Kind) -> Section | None:
        """The nearest section of a kind that this one is or lies in."""
        here: Section | None = self
        while here is not None and here.kind != kind:
            here = here.parent
        return here


class Watcher(Protocol):
    """Told of sections, from any thread. A watcher that raises is told no more."""

    def opened(self, section: Section) -> None:
        """It is about to run for the first time."""
        ...

    def ran(self, section: Section, began: int, ended: int, own: int) -> None:
        """It ran for a stretch, of which ``own`` nanoseconds were its own."""
        ...

    def closed(self, section: Section) -> None:
        """It will not run again."""
        ...


@final
class SectionStack:
    """Keeps the stack of open sections of every thread; a thread that begins lies in the one that watches.

    ``content``: somebody wants what was said, too.
    """

    def __init__(
        self,
        watchers: Sequence[Watcher],
        clock: Callable[[], int] = time.perf_counter_ns,
        *,
        content: bool = False,
    ) -> None:
        self._watchers = list(watchers)
        self.content = content
        self._clock = clock
        self._threads = threading.local()
        self._home = self._stack()
        self.refused: deque[Exception] = deque(maxlen=100)
        #: The stage under way: what lies in no other section of the run lies in it.
        self.stage: Section | None = None

    def _stack(self) -> list[Section]:
        found: list[Section] | None = getattr(self._threads, "stack", None)
        if found is None:
            found = self._threads.stack = []
        return found

    def top(self) -> Section | None:
        """The innermost section that runs here."""
        for stack in (self._stack(), self._home):
            try:
                return stack[-1]
            except IndexError:  # the home thread's may have emptied meanwhile
                continue
        return None

    def inside(self, name: str) -> bool:
        """Whether a section of this name is the innermost one here."""
        stack = self._stack()
        return bool(stack) and stack[-1].name == name

    def open(self, name: str, kind: Kind = "time", /, **attributes: Any) -> Section:
        """A section that does not run yet; :meth:`enter` lets it."""
        parent = self.top()
        # Stages come from progress, not from nesting: what lies right under the run is put under the stage.
        if parent is not None and parent.kind == "run" and kind != "stage":
            parent = self.stage or parent
        section = Section(name, kind, parent, self._clock(), attributes)
        self._tell(lambda one: one.opened(section))
        return section

    def enter(self, section: Section) -> None:
        """It runs from here on, inside what runs."""
        section._inner = 0
        section.runs += 1
        self._stack().append(section)
        section._since = self._clock()

    def leave(self, section: Section) -> None:
        """It pauses, or is over."""
        now = self._clock()
        stack = self._stack()
        while stack and stack.pop() is not section:  # what was left open inside it, by an error
            continue
        # Own time leaves out what ran inside, so that the rows of a profile add up to the whole.
        spent = now - section._since
        own = spent - section._inner
        section.spent += spent
        section.own += own
        if stack:
            stack[-1]._inner += spent
        self._tell(lambda one: one.ran(section, section._since, now, own))

    def close(self, section: Section, error: BaseException | None = None) -> None:
        """It is over, and whether it failed."""
        section.error = error
        self._tell(lambda one: one.closed(section))

    @contextmanager
    def section(self, name: str, kind: Kind = "time", /, **attributes: Any) -> Iterator[Section]:
        """A section for as long as the block lasts."""
        section = self.open(name, kind, **attributes)
        self.enter(section)
        try:
            yield section
        except BaseException as error:
            self.leave(section)
            self.close(section, error)
            raise
        self.leave(section)
        self.close(section)

    def each(self, section: Section, items: Iterable[T], heard: Callable[[T], None]) -> Iterator[T]:
        """Items of an iterator which runs as this section; what is done with them between does not count."""
        source = iter(items)
        failed: BaseException | None = None
        try:
            while True:
                self.enter(section)
                try:
                    item = next(source)
                except StopIteration:
                    return
                finally:
                    self.leave(section)
                heard(item)
                yield item
        except GeneratorExit:
            raise
        except BaseException as error:
            failed = error
            raise
        finally:
            # Whoever reads may leave early: the work is to end with its section, and not when it is
            # collected.
            close = getattr(source, "close", None)
            if close is not None:
                close()
            self.close(section, failed)

    def _tell(self, what: Callable[[Watcher], None]) -> None:
        # A copy: whoever raises is taken out of the list.
        for one in tuple(self._watchers):
            try:
                what(one)
            except Exception as error:  # watching must not end what is watched
                self._watchers.remove(one)
                self.refused.append(error)


_recorder: SectionStack | None = None


def recorder() -> SectionStack | None:
    """Who keeps this process's sections; None where nobody watches."""
    return _recorder


def keep(new: SectionStack | None) -> SectionStack | None:
    """Let another recorder keep them; the one before."""
    global _recorder
    before, _recorder = _recorder, new
    return before


@contextmanager
def section(name: str, kind: Kind = "time", /, **attributes: Any) -> Iterator[Section | None]:
    """A section of your own code: in the profile, and unless it is only timed, a span. None: nobody watches.

    Attributes are numbers, texts and lists of them; whoever watches may send them elsewhere.
    """
    if _recorder is None:
        yield None
        return
    with _recorder.section(name, kind, **attributes) as found:
        yield found
