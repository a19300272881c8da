"""Going back to a recorded moment of an episode."""

from __future__ import annotations

from collections.abc import Sequence

from refork.errors import BadInput, ReplayDiverged, UserError
from refork.types import Origin
from refork.worlds.base import Episode, Observation, Task, World


def resume(
    world: World,
    task: Task,
    seed: int,
    actions: Sequence[str],
    observations: Sequence[str],
    snapshot: bytes | None = None,
) -> tuple[Episode, Origin]:
    """An episode in the state that the recorded turns led to, and how it was reached.

    With a snapshot (taken after the last turn) it is restored: origin ``real``. Without, the actions are
    replayed from the start under ``seed`` and each answer is checked against the recorded text:
    origin ``replayed`` (``real`` where there was nothing to replay).

    Raises:
        BadInput: not one observation per action, or the snapshot is not of this task.
        ReplayDiverged: the world answered a turn otherwise than recorded, or broke; the message names the
            first.
    """
    if len(actions) != len(observations):
        raise BadInput(
            f"{len(actions)} actions and {len(observations)} observations",
            where=f"task {task.id}",
            hint="give the text that followed each action",
        )
    if snapshot is not None:
        return world.restore(task, snapshot), "real"
    episode, where = world.start(task, seed), f"world {world.name}, task {task.id}"
    # A record that goes on after the end is no record of this world: it must not replay in silence.
    over = False
    try:
        for turn, (action, expected) in enumerate(zip(actions, observations, strict=True), start=1):
            seen = None if over else step_again(episode, turn, action, where=where)
            check_answer(turn, action, expected, seen, where=where)
            over = seen is None or seen.done
    except BaseException:
        # An episode may hold a process or a page, also where Ctrl-C ends the replay.
        episode.close()
        raise
    return episode, "replayed" if actions else "real"


def step_again(episode: Episode, turn: int, action: str, *, where: str) -> Observation:
    """What a replayed action is answered; raises ReplayDiverged where the world breaks at it."""
    try:
        return episode.step(action)
    except UserError:
        raise
    except Exception as error:
        raise ReplayDiverged(
            f"replayed turn {turn} ({action.strip()!r}): the world broke: {type(error).__name__}: {error}",
            where=where,
            hint="nothing was changed; run the same command again",
        ) from error


def check_answer(
    turn: int,
    action: str,
    expected: str,
    observation: Observation | None,
    *,
    where: str,
    key: str | None = None,
) -> None:
    """Raise ReplayDiverged unless a replayed action was answered as recorded (None: not at all).

    ``key`` is the recorded state key; where both sides have one, equal text behind another state diverges.
    """
    if observation is None:
        got = "the end of the episode"
    elif observation.text != expected:
        got = repr(observation.text)
    # Two states may look alike, and what follows would then differ without a word.
    elif key is not None and observation.state_key is not None and key != observation.state_key:
        got = "the same text from another state"
    else:
        return
    raise ReplayDiverged(
        f"replayed turn {turn} ({action.strip()!r}): expected {expected!r}, got {got}",
        where=where,
        hint="the world or its seed changed since the recording, or it has chance of its own",
    )
