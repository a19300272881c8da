"""The tasks of a tree as a list: filtered, sorted and read a page at a time."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.tree.database import Database
from refork.tree.outline import TreeShape
from refork.tree.window import HOLDS, SNIPPET, pattern

Order: TypeAlias = Literal["written", "lowest", "highest", "largest"]

ORDERS: Final[tuple[Order, ...]] = ("written", "lowest", "highest", "largest")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks: those whose text holds ``text``, of a ``world``, whose mean score lies in [low, high].

    The case of A to Z counts for nothing in ``text``, that of other letters does. A task without a score
    passes only where neither end is given. ``forked``: only those with recorded arms.
    """

    text: str = ""
    world: str | None = None
    low: float | None = None
    high: float | None = None
    forked: bool = False

    def __post_init__(self) -> None:
        if any(end is not None and math.isnan(end) for end in (self.low, self.high)):
            raise BadInput("an end of the scores is not a number", where="task filter")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise BadInput(
                f"no score is at least {self.low:g} and at most {self.high:g}", where="task filter"
            )


@dataclass(frozen=True, slots=True)
class TaskLine:
    """One task: the first characters of its text, and the size and the scores of what grows from it.

    ``mean`` is of the ``scored`` real scores; where there is none, of simulated ones.
    """

    id: str
    text: str
    length: int
    world: str | None
    nodes: int
    leaves: int
    simulated: int
    mean: float | None
    scored: int
    forks: int


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks of one page; ``total`` fit the filter, of ``all`` that the tree holds."""

    tasks: tuple[TaskLine, ...]
    total: int
    all: int


def worlds(db: Database) -> list[str]:
    """Worlds that tasks name, by name."""
    found = db.rows("SELECT extra FROM nodes WHERE parent IS NULL AND extra IS NOT NULL")
    return sorted({world for (extra,) in found if (world := _world(extra)) is not None})


def _world(extra: str | None) -> str | None:
    world = None if extra is None else json.loads(extra).get("world")
    return None if world is None else str(world)


def tasks(
    db: Database, shape: TreeShape, wanted: Filter, order: Order = "written", start: int = 0, count: int = 100
) -> TaskPage:
    """One page of the tasks that fit a filter.

    Raises:
        BadInput: an unknown order, or a negative start or count.
    """
    if order not in ORDERS or start < 0 or count < 0:
        raise BadInput(f"order {order!r} from {start}, {count} tasks", hint=f"orders: {', '.join(ORDERS)}")
    roots = shape.children(-1)
    means, scored = shape.means(roots)
    passed = np.isin(shape.rows[roots], _fitting(db, wanted))
    if wanted.low is not None or wanted.high is not None:
        low = -np.inf if wanted.low is None else wanted.low
        high = np.inf if wanted.high is None else wanted.high
        passed &= (means >= low) & (means <= high)  # NaN, no score, compares false
    chosen = np.flatnonzero(passed)
    chosen = chosen[_sorted(order, means[chosen], shape.sizes[roots[chosen]])]
    page = chosen[start : start + count]
    return TaskPage(_lines(db, shape, roots[page], means[page], scored[page]), len(chosen), len(roots))


def _sorted(order: Order, means: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places in the order asked for; ties stay as written, and what has no score comes last."""
    if order == "written":
        return np.arange(len(means))
    key = {"lowest": means, "highest": -means, "largest": -sizes.astype(np.float64)}[order]
    # NaN sorts last, negated too: a task without a score comes last, whichever end is first.
    return np.argsort(key, kind="stable")


def _fitting(db: Database, wanted: Filter) -> NDArray[np.int64]:
    """Rows of tasks that fit by what their nodes say."""
    conditions, values = ["n.parent IS NULL"], list[object]()
    if wanted.text:
        conditions.append(HOLDS)
        values.append(pattern(wanted.text))
    # Extra may be long: it is read only where a world is asked for.
    extra = "NULL" if wanted.world is None else "n.extra"
    found = db.rows(f"SELECT n.row, {extra} FROM nodes n WHERE {' AND '.join(conditions)}", values)
    chosen = [row for row, said in found if wanted.world is None or _world(said) == wanted.world]
    rows = np.array(chosen, dtype=np.int64)
    return rows[np.isin(rows, list(_forks(db)))] if wanted.forked else rows


def _forks(db: Database) -> dict[int, int]:
    """Recorded arms per task, by the task's row."""
    sql = """
    WITH RECURSIVE up(arm, row, parent) AS (
        SELECT f.row, n.row, n.parent FROM forks f JOIN nodes n ON n.row = f.node
        UNION ALL SELECT up.arm, n.row, n.parent FROM up
        JOIN nodes n ON n.row = up.parent AND n.row < up.row
    ) SELECT row, count(*) FROM up WHERE parent IS NULL GROUP BY row
    """
    return dict(db.rows(sql))


def _lines(
    db: Database,
    shape: TreeShape,
    roots: NDArray[np.int64],
    means: NDArray[np.float64],
    scored: NDArray[np.int64],
) -> tuple[TaskLine, ...]:
    rows = shape.rows[roots].tolist()
    sql = (
        f"SELECT row, id, substr(text, 1, {SNIPPET}), length(text), extra FROM nodes WHERE row IN ({{keys}})"
    )
    texts = {
        row: (id_.hex(), text, length, _world(extra))
        for row, id_, text, length, extra in db.lookup(sql, rows)
    }
    arms = _forks(db)
    found = []
    for at, (row, root) in enumerate(zip(rows, roots.tolist(), strict=True)):
        mean = None if np.isnan(means[at]) else float(means[at])
        sizes = (int(shape.sizes[root]), int(shape.leaves[root]), int(shape.simulated[root]))
        found.append(TaskLine(*texts[row], *sizes, mean, int(scored[at]), arms.get(row, 0)))
    return tuple(found)
