"""Runs of the model loop on the tree: recorded turn by turn, resumed, and forked at any turn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.chat import ChatModel, PolicyChat, Reply
from refork.errors import BadInput, ReplayDiverged, ServerError
from refork.formats.openai_chat import text_of
from refork.policies.base import Cost, Sampling
from refork.policies.open import open_policy
from refork.progress import Progress, silent, waits
from refork.sampling.noise import stream_of
from refork.tree.node import NewNode, Node, Trajectory, node_id
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.localize.agreement import VERSION, Agreement, agreement
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.loop import Localizer, finished
from refork_methods.localize.on_repository import Localized
from refork_methods.localize.session import LoopSettings, Session
from refork_methods.localize.tools import RepoTools
from refork_methods.localize.trace import Trace, Turn

# Runs of the model loop on the tree: recorded turn by turn, resumed, and forked at any turn.
#
# A turn is an ``action`` and the ``observation`` that answers it; where the context was truncated, a
# ``rewrite`` with the messages that were really sent stands before the action. A ``verdict`` holds the case.
#
# The loop is its own fold over answers and no world of the fork engine: a world is told only a turn's text,
# and could neither withdraw the tools, nor see that an answer was cut, nor shorten the context. A fork here
# replays the recorded answers through the tools, checks that every observation is the recorded one, and
# asks on.

#: Draws of a fork are numbered from a place of their own below this, so that none repeats the first run's.
_DRAWS = 1 << 30


@final
@dataclass(frozen=True, slots=True)
class Recorded:
    """A run on the tree: its trace, and the node of its verdict."""

    trace: Trace
    leaf: Node


def record_runs(
    tree: Tree,
    localizer: Localizer,
    issue: str,
    *,
    draws: int = 1,
    start: CaseFile | None = None,
    progress: Progress = silent,
) -> list[Recorded]:
    """Runs from the beginning, draws 0 to ``draws - 1``; what is on the tree already is not asked again.

    Raises: BadInput for an empty issue or no draws. ServerError where the model did not answer a draw's first
    question: that draw is not recorded, those before it are.
    """
    session = localizer.session(issue, start=start)
    task = tree.append([_task(localizer, session)])[0]
    return _run(tree, localizer, task, session, range(draws), progress)


def fork_runs(
    tree: Tree,
    localizer: Localizer,
    leaf: Node | str,
    turn: int,
    *,
    draws: int = 1,
    progress: Progress = silent,
) -> list[Recorded]:
    """Go back to before ``turn`` of a recorded run and run on ``draws`` times; earlier turns are shared.

    Another model, or the same one: the localizer's. Its settings and snapshot must be those of the record.

    Raises:
        BadInput: the trajectory is no recorded run, or has no such turn.
        ReplayDiverged: the tools answer an earlier turn otherwise than recorded.
        ServerError: as :func:`record_runs`.
    """
    trajectory = tree.path(leaf)
    told = _recorded_run(trajectory)
    actions = [step.node for step in trajectory if step.node.kind == "action"]
    if not 1 <= turn <= len(actions):
        raise BadInput(
            f"there is no turn {turn}; the run has {len(actions)}", where=f"node {trajectory.leaf.id[:12]}"
        )
    # Task and verdict have no turn: the default keeps neither, whatever the turn asked for.
    kept = [step.node for step in trajectory if turn > int(step.node.extra.get("turn", _DRAWS))]
    at = kept[-1] if kept else trajectory.root
    session = _begun(localizer, told, trajectory.root)
    # A rewrite follows from the answers before it: the session shortens its context again by itself.
    _replay(session, [node for node in kept if node.kind != "rewrite"])
    first = stream_of("localize", at.id) % _DRAWS
    return _run(tree, localizer, at, session, range(first, first + draws), progress)


def trace_of(tree: Tree, leaf: Node | str, localizer: Localizer) -> Trace:
    """A recorded run read back, its tools' answers checked against the record.

    Raises: BadInput for a trajectory that is none, ReplayDiverged where an answer differs.
    """
    trajectory = tree.path(leaf)
    session = _begun(localizer, _recorded_run(trajectory), trajectory.root)
    nodes = [step.node for step in trajectory if step.node.kind in ("action", "observation")]
    _replay(session, nodes)
    draw = next((node.extra["draw"] for node in reversed(nodes) if "draw" in node.extra), 0)
    model = next((str(node.policy) for node in reversed(nodes) if node.policy), localizer.model.name)
    return finished(session, model, int(draw))


def agree_on_tree(tree: Tree, runs: Sequence[Recorded]) -> Agreement:
    """Score runs of one issue by their agreement and write it at their verdicts, as ``agreement``.

    Raises: BadInput for fewer than two runs.
    """
    found = agreement([one.trace.case for one in runs])
    producer = Producer("localize:agreement", VERSION, {"runs": [one.leaf.id for one in runs]})
    tree.add_producer(producer)
    pairs = zip(runs, found.by_run, strict=True)
    tree.add_scores([Score(one.leaf.id, "agreement", float(value), producer.id) for one, value in pairs])
    return found


def _task(localizer: Localizer, session: Session) -> NewNode:
    told: Json = {
        "snapshot": localizer.tools.snapshot.digest,
        "settings": localizer.settings.to_json(),
        "start": None if session.start is None else session.start.to_json(),
    }
    key = f"localize/{_digest([session.issue, told])}"
    extra = {"messages": [dict(one) for one in session.first], "localize": told}
    return NewNode(kind="task", key=key, text=session.issue, origin="real", extra=extra)


def _recorded_run(trajectory: Trajectory) -> Json:
    told = trajectory.root.extra.get("localize")
    if not isinstance(told, dict):
        raise BadInput("this is no recorded run of the localizer", where=f"task {trajectory.root.id[:12]}")
    return told


def _begun(localizer: Localizer, told: Json, task: Node) -> Session:
    """The run's beginning under this localizer, which must be the record's in all that decides it."""
    start = None if told["start"] is None else CaseFile.from_json(told["start"])
    session = localizer.session(task.text, start=start)
    if told["snapshot"] != localizer.tools.snapshot.digest:
        raise ReplayDiverged("the snapshot is not the recorded one", hint="open the recorded commit")
    if task.extra["messages"] != [dict(one) for one in session.first]:
        raise ReplayDiverged("the run begins with other messages", hint="use the recorded settings")
    return session


def _replay(session: Session, nodes: Sequence[Node]) -> None:
    """Fold recorded answers in, and check what they were told against the record."""
    for node in nodes:
        if node.kind == "action":
            if node.error is not None:
                session.fail(node.error)
                return
            made = session.take(_reply(node))
        elif node.kind == "observation" and [dict(m) for m in made.messages[1:]] != node.extra["messages"]:
            raise ReplayDiverged(
                f"turn {made.number} is answered otherwise than recorded", where=f"node {node.id[:12]}"
            )


def _reply(node: Node) -> Reply:
    return Reply(dict(node.message or {"role": "assistant", "content": ""}), node.finish or "stop", node.cost)


def _run(
    tree: Tree,
    localizer: Localizer,
    at: Node,
    begun: Session,
    numbers: range,
    progress: Progress,
) -> list[Recorded]:
    """Draws of one fork; ``begun`` is the run as far as the node ``at``."""
    if not numbers:
        raise BadInput(f"draws is {len(numbers)}; at least 1 is needed")
    record = _fork(localizer, at, numbers.start)
    tree.begin_fork(record)
    done = {one.draw: one for one in tree.draws(record.id)}
    found: list[Recorded] = []
    for count, draw in enumerate(numbers):
        progress("runs of the localizer", count, len(numbers))
        if draw in done:
            leaf = tree.node(done[draw].leaf)
            found.append(Recorded(trace_of(tree, leaf, localizer), leaf))
            continue
        session = localizer.session(begun.issue, start=begun.start)
        for turn in begun.turns:
            session.take(turn.reply)
        found.append(_Draw(tree, localizer, record.id, draw, session, at.id).run())
    progress("runs of the localizer", len(numbers), len(numbers))
    return found


def _fork(localizer: Localizer, at: Node, first: int) -> ForkRecord:
    settings = localizer.settings.to_json()
    policy: Json = {"name": localizer.model.name}
    # The same name says little of a policy: other weights or another temperature give other answers.
    if isinstance(localizer.model, PolicyChat):
        chat = localizer.model
        policy |= {
            "weights": chat.policy.card.weights,
            "sampling": chat.settings.to_json(),
            "seed": chat.seed,
        }
    who = policy if len(policy) > 1 else policy["name"]
    return ForkRecord(
        id=_digest(["localize", at.id, who, settings, first]), node=at.id, token=None, change=None,
        policy=policy, settings=settings, world=None, seed=0, stream=first, extra={"localize": True},
    )  # fmt: skip


@final
@dataclass(slots=True)
class _Draw:
    """One draw as it is written: every turn is committed before the next is asked."""

    tree: Tree
    localizer: Localizer
    fork: str
    draw: int
    session: Session
    at: str

    def run(self) -> Recorded:
        first = self.session.number
        while not self.session.over:
            self._turn(first)
        trace = finished(self.session, self.localizer.model.name, self.draw)
        end = "error" if trace.error is not None else "done" if trace.case.status == "final" else "limit"
        draft = NewNode(
            kind="verdict", parent=self.at, key=self._key("v"), text=trace.case.status, fork=self.fork,
            extra={"case": trace.case.to_json()},
        )  # fmt: skip
        # The draw's record names its leaf, so both go in one commit: after a crash there are both or none.
        leaf = node_id(self.at, None, "verdict", self._key("v"))
        made = self.tree.commit([draft], [DrawRecord(self.fork, self.draw, leaf, end, trace.error)])
        return Recorded(trace, made[0])

    def _turn(self, first: int) -> None:
        context = self.session.context()
        drafts: list[NewNode] = []
        if context.collapsed or context.shortened:
            self._add(drafts, self._rewrite(list(context.messages), context.collapsed))
        known = node_id(self.at, None, "action", self._key("a"))
        if self.tree.has(known):  # written by a run that was stopped: not asked again
            node = self.tree.node(known)
            reply = None if node.error is not None else _reply(node)
            if node.error is not None:
                self.session.fail(node.error)
        else:
            reply = self.localizer.ask(self.session, self.draw)
            # Nothing was drawn yet, so nothing is recorded: the next call asks again.
            if reply is None and self.session.number == first:
                raise ServerError(
                    f"the model gave no answer: {self.session.error}", where=self.localizer.model.name
                )
        # Taking the answer moves the number on, and its nodes belong to the turn that was asked.
        base = self._key("")
        if reply is None:
            self._add(drafts, self._failed())
        else:
            turn = self.session.take(reply)
            self._add(drafts, self._action(turn, base))
            if len(turn.messages) > 1:
                self._add(drafts, self._observation(turn, base))
        self.tree.commit(drafts)

    def _key(self, part: str) -> str:
        return f"{self.fork}/{self.draw}/{self.session.number}{part}"

    def _add(self, drafts: list[NewNode], draft: NewNode) -> None:
        drafts.append(draft)
        self.at = node_id(draft.parent, None, draft.kind, draft.key or "")

    def _rewrite(self, messages: list[Json], collapsed: int) -> NewNode:
        reason = f"the context was over its budget: {collapsed} turns stand as lines"
        return NewNode(
            kind="rewrite", parent=self.at, key=self._key("r"), fork=self.fork,
            text="\n".join(text_of(one) for one in messages),
            extra={"messages": messages, "reason": reason, "turn": self.session.number},
        )  # fmt: skip

    def _action(self, turn: Turn, base: str) -> NewNode:
        extra: Json = {"turn": turn.number, "result": turn.kind, "draw": self.draw}
        if turn.call is not None:
            extra["call"] = [turn.call.name, turn.call.arguments]
        if turn.repairs:
            extra["repairs"] = list(turn.repairs)
        return NewNode(
            kind="action", parent=self.at, key=f"{base}a", text=text_of(turn.reply.message), fork=self.fork,
            message=turn.reply.message, policy=self.localizer.model.name, origin="real",
            finish=turn.reply.finish, cost=turn.reply.cost, extra=extra,
        )  # fmt: skip

    def _observation(self, turn: Turn, base: str) -> NewNode:
        messages = [dict(one) for one in turn.messages[1:]]
        shown = [[one.path, one.start, one.end] for one in turn.spans]
        return NewNode(
            kind="observation", parent=self.at, key=f"{base}o", fork=self.fork, origin="real",
            text="\n".join(text_of(one) for one in messages), message=messages[0],
            extra={"messages": messages, "turn": turn.number, "shown": shown},
        )  # fmt: skip

    def _failed(self) -> NewNode:
        return NewNode(
            kind="action", parent=self.at, key=self._key("a"), fork=self.fork, finish="error",
            policy=self.localizer.model.name, error=self.session.error, cost=Cost(), origin="real",
            extra={"turn": self.session.number, "draw": self.draw},
        )  # fmt: skip


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


# A model's case file on a directory that the investigator has read.


def open_chat(spec: str, max_tokens: int, progress: Progress = silent) -> PolicyChat:
    """The model of a policy's name, asked at temperature 0.7. Raises BadInput for a name that is none."""
    policy = open_policy(spec, on_wait=waits(progress))
    return PolicyChat(policy, Sampling(temperature=0.7, max_tokens=max_tokens))


def ask_model(
    localized: Localized,
    issue: str,
    model: ChatModel,
    settings: LoopSettings | None = None,
    *,
    use_start: bool = True,
    tree: Path | None = None,
    progress: Progress = silent,
) -> Trace:
    """Let a model look further on what the investigator found; ``use_start`` shows it those places.

    ``tree``: record the run in this tree file, to fork it at any turn; one that is there is not asked again.

    Raises: ServerError where the model did not answer even once.
    """
    localizer = Localizer(model, RepoTools(localized.snapshot), settings)
    start = localized.case if use_start and localized.case.locations else None
    if tree is None:
        made = localizer.trace(issue, start=start, progress=progress)
    else:
        with Tree.open(tree) as file:
            made = record_runs(file, localizer, issue, start=start, progress=progress)[0].trace
    if made.error is not None and not made.turns:
        raise ServerError(f"the model gave no answer: {made.error}", where=model.name)
    return made
