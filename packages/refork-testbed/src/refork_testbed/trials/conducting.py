"""A conductor's queries and pool where every chance is known: expressions and their four workers."""

from __future__ import annotations

from typing import final

from refork.worlds.base import Split
from refork_methods.route.conduct.coins import Coins, SeededCoins
from refork_methods.route.conduct.world import Query, in_rounds
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_testbed.worlds.expressions import Expression, expressions, workers


@final
class Expressions:
    """Expressions of two operators; see :mod:`refork_testbed.worlds.expressions`."""

    name = "expressions"

    def draw(self, split: Split, count: int, seed: int) -> list[Query]:
        """Expressions in seeded order."""
        return in_rounds([Query(e.text, e.text, split) for e in expressions(split, None, seed)], count)

    def quality(self, query: Query, answer: str) -> float:
        """1 where the number is right."""
        return float(answer.strip() == str(Expression.parse(query.text).value))


def expression_pool(coins: Coins | None = None, price: float | None = None) -> WorkerPool:
    """The four workers for expressions; ``coins`` is their chance, ``price`` the money per call of each."""
    flips = coins or SeededCoins()
    priced = None if price is None else Price(0.0, 0.0, price)
    return WorkerPool(tuple(Worker(one.name, chat=one, price=priced) for one in workers(flips)))
