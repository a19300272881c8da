"""Rollouts of the loop of turns with roles, for trainers of heads: a question, its turns, its answer's grade.

What evolution moves here are all rows of a head, those of workers and those of roles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.plain import content_hash
from refork.sampling.noise import stream_of
from refork.types import Message
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.conduct.conductor import DRAWS
from refork_methods.route.conduct.world import FileQueries, Queries, Query, query_to_json
from refork_methods.route.decision import in_pool_order
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import WorkerPool
from refork_methods.route.rollouts import Episode, Episodes, Reader, Router, gather
from refork_methods.route.turns import MOST_TURNS, ROLES, Caster, Turns, run_turns


@final
class TurnRollouts:
    """Questions that a pool answers in turns with roles, under the head of any router that is given.

    Before each turn the conversation is read by ``reader`` (a backbone, or a function that gives states) and
    the worker that the router names speaks in the head's likeliest role. The reward is how right
    the answer is; no answer, or one that cannot be graded, is a failed rollout. Luck is a function of the
    question, its place among equal ones and the seed.

    Raises: BadInput for no question, no turn, or two questions of one id.
    Source: arXiv:2512.04695 trains its head of workers and roles by evolution on such rollouts; how answers
    are graded is the user's.
    """

    def __init__(
        self,
        pool: WorkerPool,
        queries: Sequence[Query],
        grade: Callable[[Query, str], float | None],
        reader: RouterBackbone | Reader,
        *,
        most: int = MOST_TURNS,
        name: str = "questions",
    ) -> None:
        if not queries or most < 1:
            raise BadInput("turns need a question and at least one turn", where=name)
        if len({query.id for query in queries}) != len(queries):
            raise BadInput("two questions have one id", where=name)
        self.pool, self.workers, self.open = pool, pool.names, pool.open
        self.unpriced = tuple(one for one in pool.open if pool[one].price is None)
        self.size, self.max_turns = len(queries), most
        self._queries, self._grade, self._reader = tuple(queries), grade, reader
        told = [[query_to_json(query) for query in queries], pool.identity, most]
        self.name = f"turns:{name} {content_hash(told)[:12]}"

    @classmethod
    def of(
        cls, pool: WorkerPool, queries: Queries, reader: RouterBackbone | Reader, *,
        held_out: bool, count: int, seed: int = 0,
    ) -> TurnRollouts:  # fmt: skip
        """At most ``count`` different questions of one side of a collection, graded as it says."""
        found = queries.draw("held-out" if held_out else "train", count, seed)
        different = list({query.id: query for query in found}.values())
        return cls(pool, different, queries.quality, reader, name=queries.name)

    def __call__(self, router: Router, tasks: Int[np.ndarray, "n"], seed: int) -> Episodes:
        """One loop for each task. Raises CannotDo where all fail; BadInput for a head without roles."""
        if router.head.roles != ROLES:
            raise BadInput(f"the head's roles are {router.head.roles}", hint=f"begin with roles={ROLES}")
        seen: Counter[int] = Counter()
        found: list[Episode | None] = []
        reason: str | None = None
        with self._moved(router.head):
            for row, task in enumerate(tasks.tolist()):
                query = self._queries[task]
                draw = stream_of("turns", query.id, seed, seen[task]) % DRAWS
                seen[task] += 1
                done = run_turns(
                    [{"role": "user", "content": query.text}],
                    self.pool,
                    self._caster(router, row),
                    most=self.max_turns,
                    draw=draw,
                )
                made, why = self._episode(query, done)
                found.append(made)
                reason = reason or why
        return gather(found, len(self.workers), reason)

    def _episode(self, query: Query, done: Turns) -> tuple[Episode | None, str | None]:
        """The rollout; None where it failed, and why."""
        used = tuple(self.pool.index(turn.worker) for turn in done.turns)
        broken = next((turn.error for turn in done.turns if turn.error), None)
        if done.answer is None:
            if broken is not None:
                return None, f"{query.id}: {broken}"
            # Nobody was told to work: that is the head's doing, and earns nothing.
            return Episode(0.0, used, done.bill.total), None
        value = self._grade(query, done.answer)
        if value is None:
            return None, f"{query.id}: nobody graded this answer"
        return Episode(value, used, done.bill.total), None

    def _caster(self, router: Router, row: int) -> Caster:
        """The router's worker, in the likeliest role of its head."""
        head = router.head

        def cast(
            messages: Sequence[Message],
        ) -> tuple[Float[np.ndarray, "workers"], Float[np.ndarray, "roles"]]:
            talks = [list(messages)]
            read = self._reader
            state = read.states(talks) if isinstance(read, RouterBackbone) else np.asarray(read(talks), float)
            # The router's pick comes first; where it gave no answer before, the head's chances decide.
            name = head.workers[int(router.choose(state, np.array([row]))[0])]
            picked = np.eye(len(self.workers))[self.pool.index(name)]
            return (in_pool_order(head, state, self.pool) + picked) / 2, head.role_probabilities(state)[0]

        return cast

    def _moved(self, head: SelectionHead) -> ExitStack:
        """The backbone as the head wants it, while inside."""
        stack = ExitStack()
        if head.offsets is not None:
            if not isinstance(self._reader, RouterBackbone):
                raise BadInput("the head has offsets and nothing reads with a backbone")
            stack.enter_context(self._reader.moved(self._reader.adapter(head.matrices), head.offsets))
        return stack


def open_turns(
    questions: Path, pool: WorkerPool | None, backbone: RouterBackbone | None, *,
    tasks: int, test: int, seed: int,
) -> tuple[TurnRollouts, TurnRollouts, int]:  # fmt: skip
    """Loops to train and to test on, of different questions of a file, and the width of a state.

    Raises: BadInput for no pool or backbone, and as :class:`FileQueries`.
    """
    if pool is None or backbone is None:
        raise BadInput("turns need --pool (who works) and --backbone (what the head reads)")
    queries = FileQueries.read(questions)
    train, held = (
        TurnRollouts.of(pool, queries, backbone, held_out=held_out, count=count, seed=seed)
        for held_out, count in ((False, tasks), (True, test))
    )
    return train, held, int(backbone.states(["a question"]).shape[1])
