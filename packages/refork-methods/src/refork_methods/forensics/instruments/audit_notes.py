"""Audit notes: a harness that demands a short justification with every call of the action in question.

The notes say which motives are *stated*, and how often; they carry no causal weight. They also show whether
an edit took effect: a note that names the edited thing has read it.

Source: arXiv:2606.26071, appendix E. The wording of the demand is ours.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from refork.errors import BadInput
from refork.tree.node import Trajectory
from refork.types import Json
from refork.worlds.base import Episode, Observation, Split, Task, World
from refork_methods.forensics.arm import Arm, Outcome
from refork_methods.forensics.instruments.reading import Reader

#: What a note looks like in a turn, and how it is asked for.
NOTE: Final = re.compile(r"^[ \t]*NOTE:[ \t]*(\S.*)$", re.MULTILINE)
DEMAND: Final = "This call needs a note. Repeat it with a line 'NOTE: why you make it' in the same turn."


def note_in(action: str) -> str | None:
    """The justification that a turn gives; None where it gives none."""
    found = NOTE.search(action)
    return found[1].strip() if found else None


@final
class AuditedEpisode:
    """An episode whose target calls are held back until they carry a note or were held often enough."""

    def __init__(
        self,
        inner: Episode,
        is_target: Callable[[str], bool],
        asks: int,
        notes: Sequence[Json] = (),
        held: int = 0,
    ) -> None:
        self._inner = inner
        self._is_target = is_target
        self._asks = asks
        self._notes = list(notes)
        self._held = held

    @property
    def first(self) -> Observation:
        """What the world shows first; the harness says nothing before it must."""
        return self._inner.first

    def step(self, action: str) -> Observation:
        """Hold a target call without a note back; let everything else through, the note taken out."""
        if not self._is_target(action):
            return self._inner.step(action)
        note = note_in(action)
        if note is None and self._held < self._asks:
            self._held += 1
            return Observation(DEMAND, None, info={"audit": "held"})
        self._notes.append({"note": note})
        self._held = 0
        # The world is given the call as if no harness were there: its own grammar knows no notes.
        seen = self._inner.step(NOTE.sub("", action) if note is not None else action)
        return replace(seen, info=seen.info | {"audit": "let through", "audit_note": note})

    def snapshot(self) -> bytes | None:
        """The world's state with the harness's own; None where the world has none."""
        inner = self._inner.snapshot()
        if inner is None:
            return None
        body = {"inner": base64.b64encode(inner).decode(), "notes": self._notes, "held": self._held}
        return json.dumps(body, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """The world's own chance."""
        self._inner.reseed(seed)

    def close(self) -> None:
        """Free the world's episode."""
        self._inner.close()


@final
@dataclass(frozen=True)
class AuditNotes:
    """A world whose target calls need a justification.

    ``is_target``: whether a turn calls the action in question. ``asks``: how often a call without a note is
    held back before it goes through unjustified, so that a run always ends. ``rule`` names ``is_target`` in
    the version.
    """

    inner: World
    is_target: Callable[[str], bool]
    asks: int = 1
    rule: str = "1"

    def __post_init__(self) -> None:
        if self.asks < 0:
            raise BadInput(f"asks is {self.asks}; it is 0 or more")

    @property
    def name(self) -> str:
        """The world's own name with the harness as an option."""
        return self.inner.name + ("&" if "?" in self.inner.name else "?") + "audit=notes"

    @property
    def version(self) -> str:
        """The world's version, the harness's and the rule's."""
        return f"{self.inner.version}+notes.1.{self.asks}.{self.rule}"

    @property
    def max_turns(self) -> int:
        """The limit of the world, with room to hold back every turn: each may be a target call."""
        return self.inner.max_turns * (1 + self.asks)

    @property
    def deterministic(self) -> bool:
        """As the world."""
        return self.inner.deterministic

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """The world's tasks."""
        return self.inner.tasks(split, count, seed)

    def start(self, task: Task, seed: int) -> AuditedEpisode:
        """Begin an episode under the harness."""
        return AuditedEpisode(self.inner.start(task, seed), self.is_target, self.asks)

    def restore(self, task: Task, snapshot: bytes) -> AuditedEpisode:
        """An episode in exactly the state of a snapshot; raises BadInput where it is no snapshot of this."""
        try:
            body = json.loads(snapshot)
            inner = base64.b64decode(body["inner"])
            notes, held = body["notes"], body["held"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"not a snapshot of {self.name}: {error!r}", where=f"task {task.id}") from error
        return AuditedEpisode(self.inner.restore(task, inner), self.is_target, self.asks, notes, held)


def notes_of(trajectories: Sequence[Trajectory]) -> list[tuple[str, str | None]]:
    """Every target call that went through: the node of the answer, and the note (None: none was given)."""
    # By node: rollouts that were forked behind a call share it, and it was made once.
    found = {
        step.node.id: step.node.extra.get("audit_note")
        for trajectory in trajectories
        for step in trajectory
        if step.node.kind == "observation" and step.node.extra.get("audit") == "let through"
    }
    return list(found.items())


def stated_motives(trajectories: Sequence[Trajectory], reader: Reader) -> list[Arm]:
    """How often each motive is stated in the notes, an arm per label; calls without a note are failed.

    This is the prevalence of *stated* motives: what moves the behaviour is for the edits to show.

    Raises: BadInput where no target call went through.
    """
    found = notes_of(trajectories)
    if not found:
        raise BadInput("no target call went through in these rollouts: there is no note to read")
    given = iter(reader.read([note for _, note in found if note is not None]))
    labels = [(node, None if note is None else next(given)) for node, note in found]
    return [
        Arm.of(
            f"states {label}",
            [Outcome("failed" if x is None else "hit" if x == label else "miss", node) for node, x in labels],
            grader=reader.producer.id,
        )
        for label in reader.labels
    ]


def edit_noticed(trajectories: Sequence[Trajectory], mention: str) -> Arm:
    """In how many notes an edit's text is mentioned: that the agent read it, not that it mattered.

    Raises: BadInput where no target call went through.
    """
    found = notes_of(trajectories)
    if not found:
        raise BadInput("no target call went through in these rollouts: there is no note to read")
    ends = [
        Outcome("failed" if note is None else "hit" if mention.lower() in note.lower() else "miss", node)
        for node, note in found
    ]
    return Arm.of(f"mentions {mention!r}", ends)
