"""What a worker does, on any backend: open a policy and a world once, run units, hand back what they gave.

As a process of its own (:func:`main`) it reads a unit a line and writes an answer a line, and ends with its
input.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, final

from refork import errors
from refork.errors import BadInput, Mismatch, UserError, WrongTokenizer, WrongWeights
from refork.forking.backend.unit import FORMAT
from refork.forking.backend.wire import pack, pack_score, unpack, unpack_array, unpack_bytes
from refork.forking.episodes import Episodes
from refork.forking.run_on import Branch, run_to, world_producer
from refork.policies.base import Policy, Sampling
from refork.policies.open import open_policy
from refork.registry import Kind, resolve
from refork.runs.join import join, leave
from refork.runs.record import BEAT
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Node, Step, Trajectory, node_id
from refork.tree.score import DrawRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork.visible import show_only
from refork.worlds.base import World
from refork.worlds.open import Named, named, open_world

#: What a specification of one's own begins with: ``call:package.module:function`` or ``...@argument``.
CALL: Final = "call:"
#: What a line begins with that is no answer but a sign of life.
SIGN: Final = "sign "


def called(kind: Kind, spec: str) -> Any:
    """What a function gives that ``call:package.module:function[@argument]`` names.

    Raises:
        BadInput: no such module or function.
    """
    name, _, argument = spec.removeprefix(CALL).partition("@")
    if ":" not in name:
        raise BadInput(f"{spec!r} names no function", hint="write call:package.module:function[@argument]")
    found = resolve(kind, name)
    return found(argument) if argument else found()


@final
@dataclass(slots=True)
class Sheet:
    """Takes what a run writes and keeps it, each draw's part together."""

    unit_places: dict[str, int]
    parts: dict[str, int] = field(default_factory=dict)
    new_nodes: list[NewNode] = field(default_factory=list)
    draws: list[DrawRecord] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    producers: dict[str, Producer] = field(default_factory=dict)

    def add_producer(self, producer: Producer) -> str:
        """Note who gives scores; its id."""
        self.producers.setdefault(producer.id, producer)
        return producer.id

    def commit(
        self, new_nodes: Sequence[NewNode], draws: Sequence[DrawRecord] = (), scores: Iterable[Score] = ()
    ) -> None:
        """Note nodes, finished draws and scores."""
        for new_node in new_nodes:
            key = new_node.key or ""
            self.parts[node_id(new_node.parent, new_node.keep, new_node.kind, key)] = self.unit_places[
                key.split("/")[1]
            ]
        self.new_nodes += new_nodes
        self.draws += draws
        self.scores += scores

    def to_json(self) -> Json:
        """All of it in order of draws, each draw's nodes as they came."""

        def unit_order(new_node: NewNode) -> int:
            return self.unit_places[(new_node.key or "").split("/")[1]]

        return {
            "drafts": [pack(new_node) for new_node in sorted(self.new_nodes, key=unit_order)],
            "draws": [dataclasses.asdict(d) for d in sorted(self.draws, key=lambda d: d.draw)],
            "scores": [pack_score(s) for s in sorted(self.scores, key=lambda s: self.parts[s.node])],
            "producers": [dataclasses.asdict(producer) for producer in self.producers.values()],
        }


@final
class Worker:
    """Runs units. Policies and worlds stay open from one unit to the next; ``opened`` are there already.

    ``path``: folders of the driver's modules, looked into last, where this machine has them. ``report`` is
    told a :meth:`sign` every few seconds, whatever the worker does meanwhile.
    """

    def __init__(
        self,
        threads: int = 1,
        opened: dict[str, Policy] | None = None,
        path: Sequence[str] = (),
        report: Callable[[Json], None] | None = None,
    ) -> None:
        sys.path += [entry for entry in path if entry not in sys.path and Path(entry).is_dir()]
        self._threads = threads
        self._policies: dict[str, Policy] = dict(opened or {})
        self._worlds: dict[str, World] = {}
        self._units = 0
        self._sheet: Sheet | None = None
        if report is not None:
            threading.Thread(target=_beat, args=(self.sign, report), daemon=True).start()

    def hello(self) -> Json:
        """Who this is: answered as soon as work can be taken."""
        return {"pid": os.getpid(), "host": socket.gethostname(), "format": FORMAT}

    def sign(self) -> Json:
        """A sign of life: how many units were begun here, and the draws that are done of the last one."""
        sheet = self._sheet
        return {"unit": self._units, "done": 0 if sheet is None else len(sheet.draws)}

    def run(self, text: str) -> str:
        """A unit's answer: its result, or why it was refused, or where it broke."""
        self._units += 1
        try:
            return _dumps(self._run(json.loads(text)))
        except Exception as error:
            return json.dumps(wrong(error))
        finally:
            self._sheet = None

    def _run(self, unit: Json) -> Json:
        if unit["format"] != FORMAT:
            raise Mismatch(
                f"the driver sends units of format {unit['format']}, this worker reads {FORMAT}",
                hint="put the same checkout on every node",
            )
        arm = unit["arm"]
        policy, world = self._policy(arm["policy"]), self._world(arm["world"])
        draws = [(int(draw), str(attempt)) for draw, attempt in unit["draws"]]
        self._sheet = sheet = Sheet({f"{draw}{attempt}": at for at, (draw, attempt) in enumerate(draws)})
        branches = _branches(arm, draws)
        with Tree.memory() as store:
            if world is not None:
                episodes = Episodes(store, _walk(arm, store), world)
                try:
                    for branch in branches:
                        branch.episode, branch.origin = episodes.fresh(branch.noise.integer())
                finally:
                    episodes.close()
            producer = None if world is None else world_producer(world.name, world.version)
            sampling = Sampling.from_json(arm["settings"])
            totals = run_to(sheet, branches, policy, sampling, producer=producer)
        used = {"tokens": sum(totals.tokens.values()), "ties": sum(totals.ties.values())}
        return sheet.to_json() | used

    def _policy(self, wanted: Json) -> Policy:
        spec = wanted["spec"]
        if spec not in self._policies:
            self._policies[spec] = called("policies", spec) if spec.startswith(CALL) else open_policy(spec)
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(self._threads)
        policy = self._policies[spec]
        for name, kind in (("weights", WrongWeights), ("tokenizer", WrongTokenizer)):
            here, there = getattr(policy.card, name), wanted[name]
            if here != there:
                raise kind(
                    f"a worker finds {name} {str(here)[:12]} under {spec!r}, the driver {str(there)[:12]}",
                    hint="the same name must be the same model on every node",
                )
        return policy

    def _world(self, wanted: Json | None) -> World | None:
        if wanted is None:
            return None
        spec = wanted["spec"]
        if spec not in self._worlds:
            self._worlds[spec] = (
                called("worlds", spec) if spec.startswith(CALL) else _named(open_world(spec), wanted["name"])
            )
        world = self._worlds[spec]
        if world.version != wanted["version"]:
            raise Mismatch(
                f"a worker has version {world.version} of {spec!r}, the driver {wanted['version']}",
                hint="put the same checkout on every node",
            )
        return world


def _named(world: World, name: str) -> World:
    """A world of a file is opened by its place here and recorded by the name that the driver has for it."""
    # Not a name around a name: a task is handed on under the world's own.
    return world if world.name == name else named(world.world if isinstance(world, Named) else world, name)


def _branches(arm: Json, draws: Sequence[tuple[int, str]]) -> list[Branch]:
    seed, stream = arm["noise"]
    shared = arm["branch"]
    tokens = unpack_array(shared["tokens"])
    return [
        Branch(
            **shared
            | {
                "tokens": tokens,
                "messages": list(shared["messages"]),
                "noise": NoiseKey(seed, stream, draw),
                "attempt": attempt,
            }
        )
        for draw, attempt in draws
    ]


def _walk(arm: Json, store: Tree) -> Trajectory:
    """The walk to the point; its last snapshot lies in ``store``."""
    steps = [Step(unpack(Node, data), keep) for data, keep in arm["walk"]]
    if arm["snapshot"] is not None:
        place = arm["snapshot"]["step"]
        digest = store.put_blob(unpack_bytes(arm["snapshot"]["data"]))
        steps[place] = dataclasses.replace(
            steps[place], node=dataclasses.replace(steps[place].node, snapshot=digest)
        )
    return Trajectory(tuple(steps))


def _dumps(result: Json) -> str:
    try:
        return json.dumps(result)
    except (TypeError, ValueError) as error:
        raise BadInput(f"not plain JSON data: {error}", where="a unit's result") from error


def _beat(sign: Callable[[], Json], report: Callable[[Json], None]) -> None:
    pause = threading.Event()
    while not pause.wait(BEAT):
        try:
            report(sign())
        except OSError:  # nobody listens: the driver is gone, and this process ends with its input
            return


def wrong(error: Exception) -> Json:
    """An error as a worker's answer: a refusal where the user can mend it, else our fault with its place."""
    if not isinstance(error, UserError):
        return {"broken": "".join(traceback.format_exception(error))}
    said = {"what": error.what, "where": error.where, "hint": error.hint}
    return {"refused": said | {"kind": type(error).__name__}}


def refusal(data: Json) -> UserError:
    """The error that a worker refused a unit with, as the same kind of error here."""
    kind: Callable[..., UserError] = getattr(errors, data["kind"], UserError)
    if data["kind"] == "MissingExtra":  # its own arguments are a package and an extra
        kind = errors.CannotDo
    return kind(data["what"], where=data["where"], hint=data["hint"])


def serve(threads: int, lines: IO[str], out: IO[str]) -> None:
    """Answer every line until there are no more; the first line out says that work can be taken.

    Between them lie signs of life, which begin with :data:`SIGN`.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)  # what torch goes by when it is imported
    lock = threading.Lock()

    def say(text: str) -> None:
        with lock:
            out.write(text + "\n")
            out.flush()

    worker = Worker(threads, report=lambda sign: say(SIGN + json.dumps(sign)))
    # Said once all is imported: until then a death counts as one at the start.
    say(json.dumps(worker.hello()))
    for line in lines:
        say(worker.run(line))


def main(threads: int) -> None:
    """Serve this process's standard input and output."""
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    show_only()
    join()
    serve(threads, sys.stdin, answers)
    leave()
