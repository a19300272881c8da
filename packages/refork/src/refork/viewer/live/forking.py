"""Forks that the page asks for: one at a time, in a thread, in batches: the effect is seen coming."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, final

from refork.errors import BadChange, BadInput, CannotDo, UserError
from refork.forking import fork, fork_both, parse_change
from refork.forking.arm import Fork
from refork.forking.change import Change
from refork.judge import Judge
from refork.policies.base import Policy
from refork.policies.workers import release_workers
from refork.tree.node import Point, Trajectory
from refork.tree.tree import Tree
from refork.types import Json
from refork.viewer.live.answers import arm_card, effect_card
from refork.worlds.base import World

#: Draws of one arm at most, and of the first batch; later batches double.
MOST: Final = 1024
FIRST: Final = 8
#: Finished jobs that are remembered.
KEPT_JOBS: Final = 50
#: What may be changed from the page: nothing that opens another policy or world.
KINDS: Final = ("remove", "replace", "insert", "ban", "ban-always", "force", "message", "set")
_log = logging.getLogger("refork.viewer")


class _Stopped(Exception):
    """The job was asked to stop."""


@dataclass(frozen=True, slots=True)
class ForkSetup:
    """Who forks: the policy that goes on, the world of a trajectory, and who grades where there is none."""

    policy: Policy
    world: Callable[[Trajectory], World | None]
    judge: Judge | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """A fork as the page asks for it. ``token``: tokens of the node that stand; None: all."""

    tree: str
    node: str
    token: int | None
    changes: tuple[str, ...]
    draws: int
    seed: int = 0
    score: str = "success"


@dataclass(slots=True)
class Job:
    """One fork under way or over. ``state``: running, done, stopped or failed."""

    id: str
    wish: Wish
    state: str = "running"
    stage: str = "starting"
    done: int = 0
    total: int = 0
    tokens: int | None = None
    card: Json | None = None
    error: str | None = None
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    stop: bool = False

    def to_json(self) -> Json:
        """What the page shows of it."""
        over = self.state != "running"
        return {
            "job": self.id,
            "tree": self.wish.tree,
            "node": self.wish.node,
            "token": self.wish.token,
            "changes": list(self.wish.changes),
            "wanted": self.wish.draws,
            "state": self.state,
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "tokens": self.tokens,
            "seconds": round(self.seconds if over else time.monotonic() - self.began, 1),
            "card": self.card,
            "error": self.error,
        }


@final
class Forking:
    """Takes wishes and runs them one after the other; each is committed as it goes, as `refork fork` does."""

    def __init__(self, setup: ForkSetup, file: Callable[[str], Path]) -> None:
        self._actor = setup
        self._file = file
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def about(self) -> Json:
        """What the page is told of who forks."""
        return {"policy": self._actor.name or self._actor.policy.card.name, "kinds": KINDS, "most": MOST}

    def begin(self, wish: Wish) -> Job:
        """Check a wish and start it.

        Raises:
            BadInput: draws out of range, a change that is none or not allowed here, no such tree.
            CannotDo: another fork is under way.
        """
        if not 1 <= wish.draws <= MOST:
            raise BadInput(f"draws is {wish.draws}; it must be 1 to {MOST}")
        change = checked(wish.changes)
        file = self._file(wish.tree)
        with self._lock:
            if any(job.state == "running" for job in self._jobs.values()):
                raise CannotDo("another fork is under way", hint="wait for it to end, or stop it")
            job = Job(str(next(self._numbers)), wish)
            self._jobs[job.id] = job
            # The oldest go; whichever is under way is the newest.
            for old in list(self._jobs)[:-KEPT_JOBS]:
                del self._jobs[old]
        release_workers()  # the policy was read in another thread
        self._thread = threading.Thread(
            target=self._run, args=(job, file, change), name="refork-fork", daemon=True
        )
        self._thread.start()
        return job

    def job(self, number: str) -> Job:
        """The job of a number. Raises BadInput where there is none."""
        with self._lock:
            if number not in self._jobs:
                raise BadInput(f"no fork {number!r} was started from this page")
            return self._jobs[number]

    def jobs(self) -> list[Job]:
        """All jobs that are remembered, oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def stop(self, number: str) -> Job:
        """Ask a job to end after the round that is under way; what is drawn stays."""
        job = self.job(number)
        job.stop = True
        return job

    def close(self, seconds: float = 30.0) -> None:
        """Stop what runs and wait for it."""
        for job in self.jobs():
            job.stop = True
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, job: Job, file: Path, change: Change | None) -> None:
        try:
            with Tree.open(file) as tree:
                self._draw(job, tree, change)
            job.state = "done"
        except _Stopped:
            job.state = "stopped"
        except UserError as error:
            job.error, job.state = str(error), "failed"
        except Exception:
            _log.exception("a fork failed")
            job.error, job.state = "the fork failed; the server's log says how", "failed"
        finally:
            job.seconds = time.monotonic() - job.began

    def _draw(self, job: Job, tree: Tree, change: Change | None) -> None:
        wish = job.wish
        point = tree.at(tree.node(wish.node), wish.token)
        arms = 1 if change is None else 2
        job.total = wish.draws * arms
        world = self._actor.world(tree.path(point))
        # Draws that are there are not drawn again, so a larger batch adds only what is new.
        for draws in _batches(wish.draws):
            made = self._arms(job, point, draws, change, world)
            job.done = draws * arms
            alone = change is None
            job.card = arm_card(made[0], wish.score) if alone else effect_card(made[0], made[1], wish.score)

    def _arms(
        self, job: Job, point: Point, draws: int, change: Change | None, world: World | None
    ) -> tuple[Fork, ...]:
        """The control, and with a change both arms; a change that cannot be made is refused before draws."""

        def progress(
            stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
        ) -> None:
            job.stage = waiting or ("control" if change is None else "control and change")
            job.tokens = tokens if tokens is not None else job.tokens
            if job.stop:
                raise _Stopped

        if job.stop:
            raise _Stopped
        actor = self._actor
        shared: dict[str, Any] = {
            "world": world, "judge": actor.judge, "seed": job.wish.seed, "progress": progress,
        }  # fmt: skip
        if change is None:
            return (fork(point, actor.policy, draws, **shared),)
        return fork_both(point, actor.policy, draws, change, **shared)


def _batches(draws: int) -> list[int]:
    """How many draws are there after each batch: 8, 16, 32, ... and the number asked for."""
    sizes = list(itertools.takewhile(lambda n: n < draws, (FIRST << step for step in range(16))))
    return [*sizes, draws]


def _allowed(text: str) -> str:
    kind = text.partition(":")[0]
    if kind not in KINDS:
        raise BadChange(
            f"{kind!r} is not a change that the page may ask for", hint=f"kinds: {', '.join(KINDS)}"
        )
    return text


def _no_swap(spec: str) -> NoReturn:
    raise BadChange(f"{spec!r} cannot be opened from the page", hint="`refork fork` on the command line can")


def checked(changes: Sequence[str]) -> Change | None:
    """The change that texts of the page describe. Raises BadChange where they are none, or not allowed."""
    return parse_change([_allowed(text) for text in changes], _no_swap, _no_swap)
