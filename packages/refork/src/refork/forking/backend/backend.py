"""Backends: where draws are done. The driver alone writes, in order, each draw once."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final
from urllib.parse import parse_qsl

from refork import registry
from refork.errors import BadInput, CannotDo
from refork.forking.arm import ReadyArm, Used
from refork.forking.backend.pool import Pool, SerialPool
from refork.forking.backend.processes import ProcessPool
from refork.forking.backend.ray_pool import RayPool
from refork.forking.backend.schedule import Lost, Schedule
from refork.forking.backend.unit import Result, Unit, units_of
from refork.forking.run_on import judge_draws, world_producer
from refork.interrupt import Interrupt
from refork.judge import Judge
from refork.policies.base import Policy
from refork.policies.open import open_policy
from refork.progress import Progress, silent
from refork.runs.workers import Roster
from refork.tree.node import NewNode, node_id
from refork.tree.score import DrawRecord
from refork.tree.tree import Tree
from refork.worlds.base import World
from refork.worlds.open import Named

GRAMMAR: Final = """\
serial                 one worker in this process
processes[:N]          N processes of this machine (default: its processors)
ray[:ADDRESS]          the Ray cluster at HOST:PORT, else the one that Ray finds, else one begun here
ray://HOST:PORT        a Ray cluster through Ray's client server
options: ?threads=1&unit=16, for Ray also workers=N and gpus=0"""

#: Draws that are sampled together, whoever does them.
UNIT: Final = 16


@final
@dataclass(slots=True)
class Backend:
    """Does draws elsewhere, and writes them here.

    What workers are to open must be known by name: :meth:`open` a policy, or :meth:`know` one that is open.
    Workers begin with the first draws and end with :meth:`close`. ``unit``: draws sampled together.
    """

    pool: Pool
    unit: int = UNIT
    opened: dict[str, Policy] = field(default_factory=dict)
    retried: int = 0
    roster: Roster = field(default_factory=Roster)
    _specs: dict[int, tuple[str, object]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self.pool.close()
        self.roster.end()

    def open(self, spec: str) -> Policy:
        """The policy that a name stands for, here and on the workers."""
        # By the absolute name, under which workers hold it too: one model is opened once.
        if absolute(spec) not in self.opened:
            self.know(open_policy(spec), spec)
        return self.opened[absolute(spec)]

    def know(self, thing: Policy | World, spec: str) -> None:
        """Say how workers open what is open here: a name, or ``call:package.module:function[@argument]``.

        Folders of a policy's name are made absolute, since a worker begins in another one.
        """
        spec = absolute(spec)
        if isinstance(thing, Policy):
            self.opened[spec] = thing
        self._specs[id(thing)] = (spec, thing)

    def spec_of(self, thing: Policy | World) -> str:
        """How workers open a policy or world.

        Raises:
            CannotDo: nobody said how.
        """
        if id(thing) in self._specs:
            return self._specs[id(thing)][0]
        if isinstance(thing, World):
            head = thing.name.partition("?")[0].partition(":")[0]
            if isinstance(thing, Named) or registry.known("worlds", head):
                return absolute(thing.name)
            raise CannotDo(
                f"workers cannot open the world {thing.name!r}: it is made by this process",
                hint="open it by a name (open_world, --world SPEC), or say one: backend.know(it, SPEC)",
            )
        raise CannotDo(
            f"workers cannot open {thing.card.name!r}: it is made by this process",
            hint="name it (--policy SPEC, backend.know(it, SPEC)), or leave --backend away",
        )

    def run(
        self,
        jobs: Sequence[ReadyArm],
        *,
        judge: Judge | None = None,
        progress: Progress = silent,
        stage: str = "forking",
    ) -> dict[str, Used]:
        """Draw what prepared arms lack; what each arm used.

        Results are written in the order of arms and draws. The first Ctrl-C waits for what is under way,
        writes it, and ends; the second ends at once. The same call again goes on from what is written.

        Raises:
            KeyboardInterrupt: it was stopped.
            UserError: what one process would have raised; what stands before it is written.
        """
        for job in jobs:
            _away(job)
        units = units_of(jobs, self.unit, self.spec_of)
        for job in jobs:
            _register(job, judge)
        used = {job.record.id: Used() for job in jobs}
        done, total = 0, sum(len(unit.draws) for unit in units)
        self.roster.open()
        schedule = Schedule(self.pool, units, roster=self.roster, title=partial(_title, jobs, stage))

        def tell() -> None:
            waiting = schedule.waiting if done < total else None
            progress(stage, done, total, tokens=sum(u.tokens for u in used.values()), waiting=waiting)

        with Interrupt() as interrupt:
            tell()
            for unit, answer in schedule.results(lambda: interrupt.asked, tell):
                job = jobs[unit.job]
                result = _given_up(job, unit, answer) if isinstance(answer, Lost) else answer
                _write(_tree(job), result, judge)
                used[job.record.id] = used[job.record.id].plus(result.tokens, result.ties)
                done += len(unit.draws)
                tell()
        self.retried += schedule.retried
        if done < total:
            raise KeyboardInterrupt
        return used


def open_backend(spec: str) -> Backend:
    """The backend that a specification names; ``unit``, an option of all, is how many draws go together.

    Raises:
        BadInput: it does not follow the grammar.
    """
    head, _, query = spec.partition("?")
    name, rest = registry.split("backends", head)
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not (registry.known("backends", name) or ":" in name):
        raise BadInput(f"{spec!r} names no backend", hint=GRAMMAR)
    unit = count(options.pop("unit", str(UNIT)), "unit", spec)
    opened: dict[str, Policy] = {}
    pool: Pool = registry.resolve("backends", name)(rest, options, opened)
    if options:
        raise BadInput(f"{spec!r} names no backend: it has no {', '.join(options)}", hint=GRAMMAR)
    return Backend(pool, unit, opened)


def open_serial(rest: str, options: dict[str, str], opened: dict[str, Policy]) -> Pool:
    """``serial``: one worker in this process."""
    if rest:
        raise BadInput(f"serial takes nothing behind a colon, not {rest!r}", hint=GRAMMAR)
    return SerialPool(_threads(options), opened)


def open_processes(rest: str, options: dict[str, str], opened: dict[str, Policy]) -> Pool:
    """``processes[:N]``: N processes of this machine."""
    workers = count(rest, "the number of processes") if rest else _processors()
    return ProcessPool(workers, _threads(options))


def open_ray(rest: str, options: dict[str, str], opened: dict[str, Policy]) -> Pool:
    """``ray[:ADDRESS]``: a Ray cluster."""
    address = (f"ray:{rest}" if rest.startswith("//") else rest) or None
    workers = count(options.pop("workers"), "workers") if "workers" in options else None
    return RayPool(address, workers, _threads(options), _share(options.pop("gpus", "0")))


def _threads(options: dict[str, str]) -> int:
    return count(options.pop("threads", "1"), "threads")


def absolute(spec: str) -> str:
    """A policy's or world's name with the folders of this machine in it written out in full."""
    kind, colon, rest = spec.partition(":")
    file, mark, behind = spec.partition(".py:")
    if mark and not (registry.known("worlds", kind) or registry.known("policies", kind)):
        return f"{Path(file).resolve()}{mark}{behind}"
    if kind not in ("hf", "openai"):
        return spec
    parts = []
    for part in re.split(r"(\+[a-z_]+=)", rest):
        parts.append(str(Path(part).resolve()) if part and Path(part).is_dir() else part)
    return kind + colon + "".join(parts)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count(text: str, what: str, where: str | None = None) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"{what} is {text!r}; it must be 1 or more", where=where, hint=GRAMMAR)
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadInput(f"gpus is {text!r}; it must be 0 or more", hint=GRAMMAR)
    return value


def _title(jobs: Sequence[ReadyArm], stage: str, unit: Unit) -> str:
    """A unit for people: what is done, of which arm, and which draws."""
    first, last = unit.draws[0][0], unit.draws[-1][0]
    which = f"draw {first}" if first == last else f"draws {first}-{last}"
    return f"{stage} {jobs[unit.job].record.id[:8]} {which}"


def _tree(job: ReadyArm) -> Tree:
    assert job.point.tree is not None
    return job.point.tree


def _away(job: ReadyArm) -> None:
    """Give back the episodes that were opened here: workers open their own."""
    for branch in job.branches:
        if branch.episode is not None:
            branch.episode.close()
            branch.episode = None


def _register(job: ReadyArm, judge: Judge | None) -> None:
    """The same producers, in the same order, as one process registers."""
    world = job.plan.world
    if world is not None:
        _tree(job).add_producer(world_producer(world.name, world.version))
    if judge is not None:
        _tree(job).add_producer(judge.producer)


def _write(tree: Tree, result: Result, judge: Judge | None) -> None:
    for producer in result.producers:
        tree.add_producer(producer)
    tree.commit(result.new_nodes, result.draws, result.scores)
    if judge is not None:
        judge_draws(tree, judge, result.draws)


def _given_up(job: ReadyArm, unit: Unit, lost: Lost) -> Result:
    """A draw that kills its workers, as a failed turn: an error is data, and the others run on."""
    ((draw, attempt),) = unit.draws
    branch = next(b for b in job.branches if b.noise.draw == draw)
    card = job.plan.policy.card
    new_node = NewNode(
        kind="action",
        parent=branch.at,
        keep=branch.keep,
        key=f"{branch.fork}/{draw}{attempt}/{branch.noise.turn}a",
        policy=card.name,
        weights=card.weights,
        settings=job.plan.settings.to_json(),
        noise=branch.noise,
        fork=branch.fork,
        finish="error",
        error=lost.why,
    )
    leaf = node_id(new_node.parent, new_node.keep, new_node.kind, new_node.key or "")
    return Result([new_node], [DrawRecord(branch.fork, draw, leaf, "error", lost.why)], [], [])
