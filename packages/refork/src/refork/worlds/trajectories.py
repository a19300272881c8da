"""A recorded trajectory read as its environment saw it: actions and observations, no reasoning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

from refork.calls import message_calls
from refork.errors import BadInput
from refork.plain import canonical
from refork.thoughts import without_thoughts
from refork.tree.node import Step, Trajectory
from refork.tree.turn import PENDING, last_said
from refork.types import Json, Message
from refork.worlds.base import Task, World
from refork.worlds.environment import DOMAINS, Brief, DomainName, Environment, EnvTrajectory, Transition


@runtime_checkable
class Reads(Protocol):
    """A world that says what it reads out of a policy's whole turn."""

    def action_in(self, turn: str) -> str:
        """The action alone."""
        ...


@dataclass(slots=True)
class _Call:
    """Something done that waits for its answer; ``id`` of a tool call, None where there is none."""

    action: str
    id: str | None = None
    tool: bool = False


@final
@dataclass(slots=True)
class _Reader:
    """Pairs what was done with what was seen."""

    where: str
    world: World | None
    turns: list[Transition] = field(default_factory=list)
    open: list[_Call] = field(default_factory=list)
    actions: list[Step] = field(default_factory=list)
    graded: bool = False
    broken: str | None = None

    def read(self, walk: Trajectory) -> None:
        """All of a trajectory, up to what broke in it."""
        for step in walk.steps[1:]:
            if step.node.kind == "action":
                if self.actions and _whole(self.actions[-1]):
                    self.act()
                self.actions.append(step)
            elif step.node.kind == "rewrite" and step.node.extra.get(PENDING):
                # It carries the beginning of the turn that is open here.
                self.actions.append(step)
            elif step.node.kind in ("observation", "verdict"):
                self.act()
            if step.node.error is not None:
                self.broken = step.node.error
                return
            if step.node.kind == "observation":
                self.see(step)
            self.graded = self.graded or step.node.kind == "verdict"
        # A last word, whole and without calls, needs no answer; it is not even read for an action.
        if self.actions and not (_whole(self.actions[-1]) and not _tools(self.actions[-1])):
            self.act()
        self.end()

    def act(self) -> None:
        """One whole turn of the agent, if one was said."""
        said, self.actions = self.actions, []
        if not said:
            return
        # An action behind an unanswered one would shift every later answer by one turn.
        if self.open:
            raise self._unanswered()
        # The message of a turn in several nodes, or of a cut one, is not what was said in the end.
        message = said[-1].node.message if len(said) == 1 and said[-1].keep is None else None
        calls = [_Call(text, name, tool=True) for name, text in message_calls(message)] if message else []
        if calls:
            self.open = calls
            return
        text = "".join(turn.text for turn in last_said(Trajectory(tuple(said))))
        if message is not None and isinstance(message.get("content"), str):
            text = message["content"]
        action = self.world.action_in(text) if isinstance(self.world, Reads) else without_thoughts(text)
        if action:
            self.open = [_Call(action)]
        elif text.strip():
            raise BadInput(
                f"turn {len(self.turns) + 1} is reasoning without an action",
                where=self.where,
                hint="a turn that was cut off while it thought has no place in an environment's trajectory",
            )
        else:
            self.open = [_Call("")]

    def see(self, step: Step) -> None:
        """What followed; tool messages answer the calls of their ids, in order where they have none."""
        node = step.node
        messages: list[Message] = node.extra.get("messages") or ([node.message] if node.message else [])
        answers = [message for message in messages if message.get("role") == "tool"]
        if not self.open:
            if answers:
                raise BadInput("a tool's answer that no call asked for", where=self.where)
            return  # said by nobody's doing: a second user message
        if not (answers and self.open[0].tool):
            if self.open[0].tool and not answers and any(m.get("role") == "user" for m in messages):
                raise self._unanswered()
            if len(self.open) > 1:
                raise self._unanswered()
            self._turn(self.open.pop(), step.text, step)
            return
        by_id = {str(one.get("tool_call_id")): one for one in answers if one.get("tool_call_id")}
        loose = [one for one in answers if not one.get("tool_call_id")]
        # Some logs keep one answer to all calls of a turn; then the calls are one action.
        if len(loose) == 1 and len(self.open) > 1 and loose[0].get("answers") == len(self.open):
            whole = _Call("\n".join(call.action for call in self.open))
            self.open = []
            self._turn(whole, _content(loose[0]), step)
            return
        for call in list(self.open):
            answer = by_id.pop(call.id or "", None) or (loose.pop(0) if loose else None)
            if answer is None:
                # Tools may answer in several messages, one node each.
                continue
            self.open.remove(call)
            self._turn(call, _content(answer), step)
        if by_id:
            raise BadInput(f"an answer to an unknown call {next(iter(by_id))!r}", where=self.where)

    def end(self) -> None:
        """The path is over: what a verdict follows was answered by nothing, and a last word needs no answer.

        Raises:
            BadInput: a tool call was not answered.
        """
        if self.open and self.open[0].tool:
            raise self._unanswered()
        if self.open and self.graded:
            self.turns.append(Transition(self.open[0].action, ""))
        self.open = []

    def _turn(self, call: _Call, text: str, step: Step) -> None:
        extra = step.node.extra
        exact, note = extra.get("exact"), extra.get("note")
        self.turns.append(
            Transition(
                call.action, text,
                exact if isinstance(exact, bool) else None,
                note if isinstance(note, str) else None,
                step.node.state_key,
                False if extra.get("target") is False or step.node.origin == "simulated" else None,
            )
        )  # fmt: skip

    def _unanswered(self) -> BadInput:
        what = "tool call" if self.open[0].tool else "action"
        return BadInput(
            f"the {what} of turn {len(self.turns) + 1} has no observation: {self.open[0].action[:60]!r}",
            where=self.where,
            hint="a simulator cannot learn an answer that was not recorded",
        )


def trajectory_of(
    trajectory: Trajectory, *, source: str | None = None, world: World | None = None
) -> EnvTrajectory:
    """A trajectory as its environment saw it.

    Reasoning is taken out: tagged blocks (nested, unclosed), reasoning fields, and the words beside tool
    calls. A call is one line (:func:`refork.calls.call_text`). What a simulator answered is no target. A
    turn that broke ends it. ``world`` gives the brief of a task that was recorded without one, and reads
    actions as it would. ``extra["warnings"]`` says what is doubtful, an empty initial state for one.

    Raises:
        BadInput: an action or tool call without an observation, or a turn that holds reasoning alone.
    """
    reader = _Reader(f"node {trajectory.leaf.id[:12]}", world)
    reader.read(trajectory)
    root = trajectory.root
    return _assembled(trajectory, reader, source, _brief(root.extra, root.text, root.message, world))


def _assembled(trajectory: Trajectory, reader: _Reader, source: str | None, brief: Brief) -> EnvTrajectory:
    root = trajectory.root
    domain = root.extra.get("domain")
    known: DomainName | None = domain if domain in DOMAINS else None
    if known is None and isinstance(reader.world, Environment):
        known = reader.world.domain
    task = root.extra.get("task")
    extra: Json = {"node": trajectory.leaf.id}
    if isinstance(task, dict):
        extra["task"] = task.get("id")
    elif root.kind == "task":
        # A log's task is what it says it is, else the prompt that its trajectories share.
        extra["task"] = task if isinstance(task, str) else root.id
    reward = trajectory.leaf.extra.get("reward") if trajectory.leaf.kind == "verdict" else None
    if reward is not None:
        extra["reward"] = reward
    if simulated := sum(step.node.origin == "simulated" for step in trajectory):
        extra["simulated"] = simulated
    if reader.broken is not None:
        extra["error"] = reader.broken
    if not brief.initial_state.strip():
        extra["warnings"] = ["the initial state is empty: a simulator has to make it up"]
    return EnvTrajectory(
        id=trajectory.leaf.id[:16],
        source=source or str(root.extra.get("source") or root.extra.get("world") or "log"),
        brief=brief,
        turns=tuple(reader.turns),
        domain=known,
        split=task.get("split") if isinstance(task, dict) else None,
        extra=extra,
    )


def _brief(extra: Json, text: str, message: Message | None, world: World | None) -> Brief:
    """What was recorded, else what the world says of the task, else what the log begins with."""
    if isinstance(extra.get("brief"), dict):
        return Brief.from_json(extra["brief"])
    if isinstance(extra.get("task"), dict) and isinstance(world, Environment):
        return world.brief(Task(**extra["task"]))
    tools = extra.get("tools") or []
    messages = extra.get("messages") or ([message] if message else [])
    system = "\n".join(_content(one) for one in messages if one.get("role") in ("system", "developer"))
    rest = "\n".join(_content(one) for one in messages if one.get("role") not in ("system", "developer"))
    if not messages:
        rest = text
    return Brief(
        task_description="\n".join(part for part in (system, rest) if part),
        action_space="\n".join(canonical(tool.get("function", tool)) for tool in tools),
    )


def _whole(step: Step) -> bool:
    """Whether a step is a turn of its own and not the beginning of one that a fork went on with."""
    said = step.node.kind == "action" and step.keep is None
    return said and (step.node.finish == "stop" or step.node.message is not None)


def _tools(step: Step) -> bool:
    return bool((step.node.message or {}).get("tool_calls"))


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
