"""Turns with roles: at each a worker is picked and told to work, to think or to verify, until one accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float, Shaped

from refork.chat import Reply
from refork.errors import BadInput, ServerError
from refork.policies.base import Cost, total_cost
from refork.stats.results import Array
from refork.types import Json, Message
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.decision import head_reader, in_pool_order
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import Bill, WorkerPool

Role: TypeAlias = Literal["worker", "thinker", "verifier"]
#: The roles, in the order of a head's role rows.
ROLES: Final[tuple[Role, ...]] = ("worker", "thinker", "verifier")
#: Turns of a loop.
MOST_TURNS = 5
#: What a role is told, as the last message of its turn.
PROMPTS: Final[Mapping[Role, str]] = {
    "worker": "Do the next piece of the work and give the answer as far as it is known.",
    "thinker": "Think about how to go on, without giving the answer. You may end with a line "
    "NEXT: worker, NEXT: thinker or NEXT: verifier, to say what the next turn is.",
    "verifier": "Check the answer so far. End with a line VERDICT: accept or VERDICT: reject.",
}
#: Chances over all workers of the pool, and over ``ROLES``, for the next turn of a conversation.
Caster: TypeAlias = Callable[[Sequence[Message]], tuple[Shaped[Array, "workers"], Shaped[Array, "roles"]]]
_VERDICT = re.compile(r"^\s*VERDICT:\s*(accept|reject)\W*$", re.IGNORECASE | re.MULTILINE)
_NEXT = re.compile(r"^\s*NEXT:\s*(worker|thinker|verifier)\W*$", re.IGNORECASE | re.MULTILINE)


@final
@dataclass(frozen=True, slots=True)
class RoleTurn:
    """One turn. ``said`` None: it failed, by ``error``. ``named``: a thinker chose the role."""

    worker: str
    role: Role
    named: bool
    said: str | None
    error: str | None = None
    cost: Cost = field(default_factory=Cost)
    price: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Turns:
    """A loop that ran. ``end``: a verifier ``accepted``, all ``turns`` were taken, or ``nobody`` was left."""

    turns: tuple[RoleTurn, ...]
    end: Literal["accepted", "turns", "nobody"]

    @property
    def answer(self) -> str | None:
        """What was last said in the role of a worker; None where nothing was."""
        said = [turn.said for turn in self.turns if turn.role == "worker" and turn.said is not None]
        return said[-1] if said else None

    @property
    def bill(self) -> Bill:
        """The money of all answers, the unknown ones counted."""
        return Bill.of(turn.price for turn in self.turns if turn.said is not None)

    def to_json(self) -> Json:
        """Turn by turn, with the end and the answer."""
        return {"turns": [asdict(turn) for turn in self.turns], "end": self.end, "answer": self.answer}


def accepts(text: str) -> bool:
    """Whether a verifier's last verdict line says accept; without such a line it does not."""
    found = _VERDICT.findall(text)
    return bool(found) and found[-1].lower() == "accept"


def named_role(text: str) -> Role | None:
    """The role that a thinker's last line of that kind asks for."""
    found = _NEXT.findall(text)
    return None if not found else next(role for role in ROLES if role == found[-1].lower())


def run_turns(
    messages: Sequence[Message],
    pool: WorkerPool,
    caster: Caster,
    *,
    most: int = MOST_TURNS,
    prompts: Mapping[Role, str] = PROMPTS,
    draw: int = 0,
) -> Turns:
    """Take turns until a verifier accepts an answer, or ``most`` of them.

    Before each the caster reads the conversation, without any role's prompt; the likeliest open worker
    speaks, in the likeliest role or the one that a thinker just named. It sees the conversation, what was
    said so far, and its role's prompt. A worker that gives no answer is not asked again in this loop; an
    accept before any worker's answer accepts nothing.

    Raises: BadInput for no message or no turn, a role without a prompt, or chances that do not fit.
    Source: arXiv:2512.04695 (roles, five turns, the last worker's answer); the prompts, the lines by which
    verdicts and roles are told, and what is done about failures are ours.
    """
    if not messages or most < 1 or set(prompts) != set(ROLES):
        raise BadInput("turns need a message, at least one turn, and a prompt for each role")
    talk = [dict(message) for message in messages]
    done: list[RoleTurn] = []
    named: Role | None = None
    answered = False
    for number in range(most):
        chances, casting = caster(talk)
        role = named or ROLES[_likeliest(casting)]
        if not np.asarray(chances)[pool.mask].any():
            return Turns(tuple(done), "nobody")
        worker = pool.names[int(pool.renormalised(chances).argmax())]
        # Every turn has a draw of its own: a worker that is asked again is not bound to its first answer.
        turn = _take(pool, worker, role, named is not None, talk, prompts[role], draw * most + number)
        done.append(turn)
        if turn.said is None:
            if len(pool.open) == 1:
                return Turns(tuple(done), "nobody")
            # `named` stays: the turn that failed is still due in its role.
            pool = pool.without(worker)
            continue
        talk.append({"role": "assistant", "content": turn.said})
        answered = answered or role == "worker"
        if role == "verifier" and answered and accepts(turn.said):
            return Turns(tuple(done), "accepted")
        named = named_role(turn.said) if role == "thinker" else None
    return Turns(tuple(done), "turns")


def _take(
    pool: WorkerPool, worker: str, role: Role, named: bool, talk: Sequence[Message], prompt: str, draw: int
) -> RoleTurn:
    try:
        reply = pool.call(worker, [*talk, {"role": "user", "content": prompt}], draw=draw)
    except ServerError as error:
        return RoleTurn(worker, role, named, None, str(error))
    if reply.finish == "error":
        return RoleTurn(worker, role, named, None, reply.text or "the answer is an error", reply.cost)
    return RoleTurn(worker, role, named, reply.text, None, reply.cost, pool[worker].bill(reply.cost))


def _likeliest(casting: Shaped[Array, "roles"]) -> int:
    p = np.asarray(casting, dtype=np.float64)
    if p.shape != (len(ROLES),) or not np.isfinite(p).all():
        raise BadInput(f"{p.shape} chances for {len(ROLES)} roles, or one that is not finite")
    return int(p.argmax())


def head_caster(head: SelectionHead, backbone: RouterBackbone, pool: WorkerPool) -> Caster:
    """The caster of a head with role rows. Raises: as ``head_chooser``; BadInput for other roles."""
    if head.roles != ROLES:
        raise BadInput(f"the head's roles are {head.roles}", hint=f"make one with roles={ROLES}")
    read = head_reader(head, backbone, pool)

    def cast(
        messages: Sequence[Message],
    ) -> tuple[Float[np.ndarray, "workers"], Float[np.ndarray, "roles"]]:
        state = read(messages)
        return in_pool_order(head, state, pool), head.role_probabilities(state)[0]

    return cast


@final
class TurnsChat:
    """A loop of turns as a :class:`~refork.chat.ChatModel`; a reply's note has all its turns."""

    def __init__(
        self, pool: WorkerPool, caster: Caster, *, name: str = "turns", most: int = MOST_TURNS
    ) -> None:
        self.pool = pool
        self._caster, self._name, self._most = caster, name, most

    @property
    def name(self) -> str:
        """The one name that the loop is served under."""
        return self._name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The last worker's answer; ``tools`` are not offered. Raises ServerError where there is none."""
        del tools
        done = run_turns(messages, self.pool, self._caster, most=self._most, draw=draw)
        if done.answer is None:
            why = next((turn.error for turn in done.turns if turn.error), "no turn was a worker's")
            raise ServerError(f"no answer: {why}", where=self.name)
        cost = total_cost([turn.cost for turn in done.turns if turn.said is not None])
        spent = Cost(cost.tokens_in, cost.tokens_out, cost.seconds, done.bill.total)
        return Reply({"role": "assistant", "content": done.answer}, cost=spent, note=done.to_json())
