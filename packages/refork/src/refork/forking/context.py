"""What a trajectory means to a policy and to a world: the conversation so far, and a live episode there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refork.calls import message_calls
from refork.errors import BadInput, CannotDo
from refork.sampling.noise import NoiseKey
from refork.tree.node import Node, Point, Step, Trajectory
from refork.tree.tree import Tree
from refork.tree.turn import ContextStep, Turn, parts_of
from refork.types import Message, Origin
from refork.worlds.base import Episode, Task, World
from refork.worlds.environment import ActionObservation, EnvTrajectory
from refork.worlds.fork import check_answer, step_again
from refork.worlds.spec import family
from refork.worlds.trajectories import trajectory_of


@dataclass(frozen=True, slots=True)
class Conversation:
    """A trajectory as chat messages.

    ``pending`` is what the assistant has said in the turn that is still open (None: no turn is
    open). ``complete`` says that this turn ended by itself, so the world is to answer next.
    """

    messages: tuple[Message, ...]
    pending: str | None
    complete: bool


def conversation(trajectory: Trajectory) -> Conversation:
    """Messages of the context of a trajectory; a turn that lies in several nodes is one message."""
    parts = parts_of(trajectory.context)
    last = parts[-1] if parts else None
    messages: list[Message] = []
    for part in parts:
        if isinstance(part, ContextStep):
            messages += part.messages
        elif part is not last:
            messages.append(part.message or {"role": "assistant", "content": ""})
    if not isinstance(last, Turn):
        return Conversation(tuple(messages), None, complete=False)
    end = last.steps[-1] if last.steps else None
    whole = end is not None and (end.keep is None or end.keep >= end.node.length)
    # Inserted text ends no turn, whatever stood there: the policy goes on behind it.
    complete = whole and last.node.finish is not None and "edit" not in last.node.extra
    return Conversation(tuple(messages), last.text, complete)


def recorded_task(trajectory: Trajectory, world: World) -> Task:
    """The world's task that a path began with; raises BadInput where it began with none of this world."""
    data = trajectory.root.extra.get("task")
    if not isinstance(data, dict) or "id" not in data:
        raise BadInput(
            "this trajectory did not begin with a recorded task of a world",
            where=f"task {trajectory.root.id[:12]}",
            hint="fork it without a world: the draws then end with the policy's turn",
        )
    task = Task(**data)
    if family(task.world) != family(world.name):
        raise BadInput(
            f"the task belongs to world {task.world!r}, not {world.name!r}",
            where=f"task {trajectory.root.id[:12]}",
        )
    return task


def imported_task(trajectory: Trajectory) -> Task:
    """The task of a path whose world is not here: the recorded one, else one made of the path's beginning.

    ``data["brief"]`` is what a simulator can be told, as far as the record has it.
    """
    root = trajectory.root
    recorded = root.extra.get("task")
    tools = bool(root.extra.get("tools"))
    brief = _as_environment(trajectory, None).brief.to_json()
    if isinstance(recorded, dict) and "id" in recorded:
        task = Task(**recorded)
    else:
        task = Task(f"imported/{root.id}", "imported", "train", root.text)
    return replace(task, data={**task.data, "brief": brief} | ({"tools": True} if tools else {}))


def _as_environment(trajectory: Trajectory, world: World | None) -> EnvTrajectory:
    """The answered turns of a trajectory as its environment saw them; raises BadInput where they are none."""
    steps = list(trajectory.steps)
    while steps[-1].node.kind == "action":
        steps.pop()
    return trajectory_of(Trajectory(tuple(steps)), world=world)


def called(message: Message) -> str | None:
    """The tool calls of a message, a line of JSON each; None where it makes none."""
    return "\n".join(text for _, text in message_calls(message)) or None


@dataclass(frozen=True, slots=True)
class _Turn:
    """One recorded policy turn: what it did, whose luck it had, what the world answered."""

    action: str
    world_rng: tuple[str | None, int | None]
    seed: int | None
    answer: Step | None


def _turns(trajectory: Trajectory, tree: Tree | None = None) -> tuple[list[_Turn], list[Turn]]:
    """Completed turns of a trajectory and what is still open at its end.

    ``tree`` knows the arms, for whoever asks whose luck a turn had.
    """
    turns: list[_Turn] = []
    said: list[Turn] = []
    for part in parts_of(trajectory):
        if isinstance(part, Turn):
            said.append(part)
        # What is seen before the first action, and a second answer to one turn, answer nothing that was done.
        elif said and part.step.node.kind == "observation" and not part.step.node.extra.get("scaffold"):
            turns.append(_acted(said, part.step, tree))
            said = []
    if said and trajectory.leaf.kind == "verdict":
        turns.append(_acted(said, None, tree))
        said = []
    return turns, said


def answers(trajectory: Trajectory) -> list[Node]:
    """The answers to what was done; a view before the first action, say, answers nothing."""
    return [turn.answer.node for turn in _turns(trajectory)[0] if turn.answer is not None]


def world_noise(tree: Tree | None, node: Node) -> NoiseKey | None:
    """The noise of the draw that met an answer, which seeds the world's own chance; None: of no draw."""
    if node.noise is not None or node.fork is None or tree is None:
        return node.noise
    try:
        record = tree.fork_record(node.fork)
        # Keys of draws begin with the arm and the draw, and the attempt at it.
        return NoiseKey(record.seed, record.stream, int(node.key.split("/")[1].partition("~")[0]))
    except (BadInput, IndexError, ValueError):
        return None


def _acted(said: Sequence[Turn], answer: Step | None, tree: Tree | None) -> _Turn:
    last = said[-1].node
    fork, noise = last.fork, last.noise
    if answer is not None and answer.node.fork not in (None, last.fork):
        # The turn was whole where another draw began: the answer is that draw's, and so was the chance.
        fork, noise = answer.node.fork, world_noise(tree, answer.node)
    luck = (fork, noise.draw if noise else None)
    seed = noise.at_turn(0).integer() if noise else None
    calls = called(said[-1].message or {}) if len(said) == 1 and said[0].whole else None
    return _Turn(calls or "".join(turn.text for turn in said), luck, seed, answer)


def transcript(trajectory: Trajectory, world: World | None = None) -> tuple[ActionObservation, ...]:
    """What was done and what was answered, turn by turn, without reasoning where that can be told apart."""
    try:
        return _as_environment(trajectory, world).history()
    except BadInput:
        turns, _ = _turns(trajectory)
        return tuple((turn.action, turn.answer.text if turn.answer else "") for turn in turns)


def said_whole(trajectory: Trajectory) -> bool:
    """Whether a trajectory ends with a whole turn of a log, so that the world is to answer next."""
    last = trajectory.steps[-1]
    whole = last.keep is None or last.keep >= last.node.length
    foreign = last.node.noise is None and last.node.fork is None and "edit" not in last.node.extra
    return last.node.kind == "action" and whole and foreign


def live_episode(tree: Tree, trajectory: Trajectory, world: World) -> tuple[Episode, Origin]:
    """An episode in the state the path ends in: the last snapshot if there is one, else a checked replay.

    Raises:
        ReplayDiverged: the world answers otherwise than recorded.
        CannotDo: some of the trajectory was simulated, which the real world never lived through.
    """
    task = recorded_task(trajectory, world)
    made_up = next((step.node for step in trajectory if step.node.origin == "simulated"), None)
    if made_up is not None:
        raise CannotDo(
            f"this was answered by a simulator: {world.name!r} cannot go on from it",
            where=f"node {made_up.id[:12]}",
            hint="name the simulator (--simulator SPEC), or fork before this node",
        )
    turns, _ = _turns(trajectory, tree)
    start = 0
    episode: Episode | None = None
    for i in range(len(turns) - 1, -1, -1):
        answer = turns[i].answer
        if answer is not None and answer.node.snapshot is not None:
            episode = world.restore(task, tree.blob(answer.node.snapshot))
            start = i + 1
            break
    origin: Origin = "real" if episode is not None or not turns else "replayed"
    # A snapshot holds the chance of the draw that it was taken of, so only another draw's turn reseeds it.
    luck = turns[start - 1].world_rng if start else None
    if episode is None:
        seed = turns[0].seed if turns and turns[0].seed is not None else 0
        # Rollouts begin under seed 0 and are reseeded at once, which is the same: no opening hangs on a seed.
        episode = world.start(task, seed)
        luck = turns[0].world_rng if turns else None
    try:
        _replay(episode, turns, start, luck)
    except BaseException:
        episode.close()
        raise
    return episode, origin


def _replay(
    episode: Episode, turns: Sequence[_Turn], start: int, luck: tuple[str | None, int | None] | None
) -> None:
    """Act the turns from ``start`` again, each with its luck, and check every answer."""
    for i in range(start, len(turns)):
        turn = turns[i]
        # A world's chance belongs to the draw that met it: where another draw goes on, its luck begins anew.
        if turn.world_rng != luck and turn.seed is not None:
            episode.reseed(turn.seed)
        luck = turn.world_rng
        node = None if turn.answer is None else turn.answer.node
        where = "the turn's end" if node is None else f"node {node.id[:12]}"
        seen = step_again(episode, i + 1, turn.action, where=where)
        if node is not None:
            check_answer(i + 1, turn.action, node.text, seen, where=where, key=node.state_key)


def has_tokens(trajectory: Trajectory) -> bool:
    """Whether all that a trajectory's context says has token ids."""
    return all(step.node.tokens is not None or not step.text for step in trajectory.context)


def turn_from(point: Point) -> Node | None:
    """The turn of a log that begins at a point: how it was asked for is how a fork there asks."""
    if point.tree is None or point.mid_node or point.node.kind == "action":
        return None
    for node in point.tree.children(point.node):
        # Draws of forks are no part of the log.
        if node.kind == "action" and node.keep is None and node.fork is None:
            return node
    return None


def turn_before(trajectory: Trajectory) -> str:
    """The node that stands before the turn in which a trajectory ends: where that turn begins."""
    return next(
        (s.node.id for s in reversed(trajectory.steps) if s.node.kind != "action"), trajectory.root.id
    )


def need_tokens(trajectory: Trajectory) -> None:
    """Raise CannotDo where a trajectory has text without token ids."""
    for step in trajectory.context:
        if step.node.tokens is None and step.text:
            raise CannotDo(
                "this trajectory was recorded without token ids",
                where=f"node {step.node.id[:12]}",
                hint="fork at the end of a task or an observation, or import it with --policy",
            )
