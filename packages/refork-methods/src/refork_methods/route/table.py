"""The outcome table: what each worker earned on each query, how often it was tried, what it cost and took."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from refork.errors import BadInput, MissingExtra
from refork.jsonl import json_objects, no_text
from refork.stats.results import Array
from refork.types import Json


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """One row: ``worker`` answered ``query`` for the ``repeat``-th time and earned ``reward``.

    ``cost`` (money) and ``latency`` (seconds) are None where unknown. ``text`` and ``features`` belong to the
    query and may stand on any of its rows; ``weight`` is how much the row counts in means.
    """

    query: str
    worker: str
    reward: float
    cost: float | None = None
    latency: float | None = None
    repeat: int = 0
    text: str | None = None
    features: tuple[float, ...] | None = None
    weight: float | None = None


@final
@dataclass(frozen=True, slots=True)
class OutcomeTable:
    """Checked outcomes as columns; made by :meth:`of` or :meth:`from_arrays`.

    ``query`` and ``worker`` [rows] index ``queries`` and ``workers``; NaN in ``cost`` and ``latency`` is
    unknown. ``weight`` is None where no row has one, ``texts`` and ``features`` where no query has any.
    ``low .. high`` is the range of rewards.

    Raises: BadInput for no rows; a reward that is NaN or out of range; a negative cost or latency; a weight
    that is not positive; the same query, worker and repeat twice; features that are not finite.
    """

    queries: tuple[str, ...]
    workers: tuple[str, ...]
    query: Int[np.ndarray, "rows"]
    worker: Int[np.ndarray, "rows"]
    repeat: Int[np.ndarray, "rows"]
    reward: Float[np.ndarray, "rows"]
    cost: Float[np.ndarray, "rows"]
    latency: Float[np.ndarray, "rows"]
    weight: Float[np.ndarray, "rows"] | None = None
    texts: tuple[str | None, ...] | None = None
    features: Float[np.ndarray, "queries d"] | None = field(default=None, repr=False)
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.reward.size == 0:
            raise BadInput("the outcome table has no rows")
        for names, what in ((self.workers, "worker"), (self.queries, "query")):
            if len(set(names)) != len(names) or not all(names):
                raise BadInput(f"every {what} needs its own name, not empty")
        rewards = self.reward
        self._refuse(~np.isfinite(rewards), "the reward is NaN or infinite", "leave out what was not graded")
        outside = (rewards < self.low) | (rewards > self.high)
        self._refuse(
            outside, f"the reward is outside {self.low:g} .. {self.high:g}", "rescale, or state low and high"
        )
        for values, what in ((self.cost, "cost"), (self.latency, "latency")):
            self._refuse(
                (values < 0) | np.isinf(values),
                f"the {what} is negative or infinite",
                "leave it empty if unknown",
            )
        if self.weight is not None:
            self._refuse(
                ~(np.isfinite(self.weight) & (self.weight > 0)), "the weight is not positive", "drop the row"
            )
        keys = np.stack([self.query, self.worker, self.repeat])
        _, first, counts = np.unique(keys, axis=1, return_index=True, return_counts=True)
        if (counts > 1).any():
            copies = np.ones(len(self), dtype=np.bool_)
            copies[first] = False
            self._refuse(
                copies, "this query, worker and repeat is there twice", "number the repeats, or drop the copy"
            )
        if self.texts is not None and len(self.texts) != len(self.queries):
            raise BadInput(f"{len(self.texts)} texts for {len(self.queries)} queries")
        if self.features is not None and (
            self.features.ndim != 2
            or len(self.features) != len(self.queries)
            or not np.isfinite(self.features).all()
        ):
            raise BadInput("features must be finite numbers [queries, d], one row for each query")

    def _refuse(self, bad: Bool[np.ndarray, "rows"], what: str, hint: str) -> None:
        if bad.any():
            row = int(bad.argmax())
            more = f" and {int(bad.sum()) - 1} more" if bad.sum() > 1 else ""
            raise BadInput(
                what,
                where=f"row {row + 1}: query {self.queries[self.query[row]]!r}, worker "
                f"{self.workers[self.worker[row]]!r}{more}",
                hint=hint,
            )

    def __len__(self) -> int:
        return int(self.reward.size)

    @classmethod
    def of(
        cls,
        rows: Iterable[Outcome],
        *,
        workers: Sequence[str] | None = None,
        low: float = 0.0,
        high: float = 1.0,
    ) -> OutcomeTable:
        """A table of rows; ``workers`` fixes their order, and may name some that have no rows.

        Raises: BadInput as the class; also for a worker that is not among ``workers``, a query with two
        different texts or features, and weights or features on some rows or queries only.
        """
        listed = list(rows)
        named = tuple(workers) if workers is not None else tuple(dict.fromkeys(row.worker for row in listed))
        place = {name: i for i, name in enumerate(named)}
        stranger = next((row.worker for row in listed if row.worker not in place), None)
        if stranger is not None:
            raise BadInput(f"worker {stranger!r} is not among {', '.join(named)}")
        queries = {name: i for i, name in enumerate(dict.fromkeys(row.query for row in listed))}
        weights = [row.weight for row in listed]
        if None in weights and any(weight is not None for weight in weights):
            raise BadInput("some rows have a weight and some have none", hint="give all rows one, or none")
        texts = _of_queries(listed, "text")
        return cls(
            tuple(queries),
            named,
            np.array([queries[row.query] for row in listed], dtype=np.int64),
            np.array([place[row.worker] for row in listed], dtype=np.int64),
            np.array([row.repeat for row in listed], dtype=np.int64),
            _column([row.reward for row in listed]),
            _column([row.cost for row in listed]),
            _column([row.latency for row in listed]),
            None if not weights or weights[0] is None else _column(weights),
            tuple(texts.get(name) for name in queries) if texts else None,
            _features(_of_queries(listed, "features"), list(queries)),
            low,
            high,
        )

    @classmethod
    def from_arrays(
        cls,
        reward: Shaped[Array, "queries workers repeats"],
        workers: Sequence[str],
        queries: Sequence[str] | None = None,
        *,
        cost: Shaped[Array, "queries workers repeats"] | None = None,
        latency: Shaped[Array, "queries workers repeats"] | None = None,
        features: Shaped[Array, "queries d"] | None = None,
        texts: Sequence[str | None] | None = None,
        low: float = 0.0,
        high: float = 1.0,
    ) -> OutcomeTable:
        """A table of dense arrays; a NaN reward is an outcome that was not collected.

        Queries get their number as name where none are given. Raises: BadInput as the class, or for shapes
        that do not fit.
        """
        r = np.asarray(reward, dtype=np.float64)
        if r.ndim != 3 or r.shape[1] != len(workers):
            raise BadInput(f"rewards {r.shape} are not [queries, {len(workers)} workers, repeats]")
        named = tuple(queries) if queries is not None else tuple(str(i) for i in range(len(r)))
        extra = [
            np.full(r.shape, np.nan) if v is None else np.asarray(v, dtype=np.float64)
            for v in (cost, latency)
        ]
        if len(named) != len(r) or any(v.shape != r.shape for v in extra):
            raise BadInput(f"rewards {r.shape} do not fit {len(named)} queries or the other columns")
        q, w, k = np.nonzero(~np.isnan(r))
        return cls(
            named,
            tuple(workers),
            q,
            w,
            k,
            r[q, w, k],
            extra[0][q, w, k],
            extra[1][q, w, k],
            None,
            tuple(texts) if texts is not None else None,
            np.asarray(features, dtype=np.float64) if features is not None else None,
            low,
            high,
        )

    def rows(self) -> Iterator[Outcome]:
        """The rows again, as plain values."""
        for i in range(len(self)):
            query = int(self.query[i])
            yield Outcome(
                self.queries[query],
                self.workers[self.worker[i]],
                float(self.reward[i]),
                _known(self.cost[i]),
                _known(self.latency[i]),
                int(self.repeat[i]),
                self.texts[query] if self.texts is not None else None,
                tuple(self.features[query].tolist()) if self.features is not None else None,
                float(self.weight[i]) if self.weight is not None else None,
            )

    def means(self) -> tuple[Float[np.ndarray, "queries workers"], Int[np.ndarray, "queries workers"]]:
        """Mean reward of each query and worker (by weight where rows have one; NaN: none), and the counts."""
        return self.mean_of(self.reward), self.counts()

    def counts(self) -> Int[np.ndarray, "queries workers"]:
        """Rows of every query and worker."""
        found = np.zeros((len(self.queries), len(self.workers)), dtype=np.int64)
        np.add.at(found, (self.query, self.worker), 1)
        return found

    def mean_of(self, column: Float[np.ndarray, "rows"]) -> Float[np.ndarray, "queries workers"]:
        """Mean of a column by query and worker; NaN where there is no row, or one whose value is unknown."""
        weight = self.weight if self.weight is not None else np.ones(len(self))
        total, mass = (np.zeros((len(self.queries), len(self.workers))) for _ in range(2))
        # Not ``total[...] += ...``, which counts a cell once however often it occurs.
        np.add.at(total, (self.query, self.worker), weight * column)
        np.add.at(mass, (self.query, self.worker), weight)
        return np.divide(total, mass, out=np.full_like(total, np.nan), where=mass > 0)

    def select(
        self, queries: Collection[str] | None = None, workers: Collection[str] | None = None
    ) -> OutcomeTable:
        """The rows of some queries and workers, both in the order of this table.

        Raises: BadInput for a name that is not there, or nothing left.
        """
        keep_q = _keep(self.queries, queries, "query")
        keep_w = _keep(self.workers, workers, "worker")
        # keep_q and keep_w are sorted, so searchsorted renumbers what is kept.
        rows = np.isin(self.query, keep_q) & np.isin(self.worker, keep_w)
        return replace(
            self,
            queries=tuple(self.queries[i] for i in keep_q),
            workers=tuple(self.workers[i] for i in keep_w),
            query=np.searchsorted(keep_q, self.query[rows]),
            worker=np.searchsorted(keep_w, self.worker[rows]),
            repeat=self.repeat[rows],
            reward=self.reward[rows],
            cost=self.cost[rows],
            latency=self.latency[rows],
            weight=self.weight[rows] if self.weight is not None else None,
            texts=tuple(self.texts[i] for i in keep_q) if self.texts is not None else None,
            features=self.features[keep_q] if self.features is not None else None,
        )

    def split(self, rng: np.random.Generator, share: float = 0.2) -> tuple[OutcomeTable, OutcomeTable]:
        """Two tables with no task or text in common: for the fit, and (``share`` of the tasks) for the test.

        Raises: BadInput where either would be empty.
        """
        groups = self.groups()
        tasks = int(groups.max()) + 1
        count = round(share * tasks)
        if not 0 < count < tasks:
            raise BadInput(f"a share of {share} of {tasks} tasks leaves one part empty")
        test = np.isin(groups, rng.permutation(tasks)[:count])
        held = {query for query, out in zip(self.queries, test, strict=True) if out}
        return self.select(set(self.queries) - held), self.select(held)

    def groups(self) -> Int[np.ndarray, "queries"]:
        """The number of what each query stays together with: those of one task, and those of equal text."""
        together = nx.Graph()
        for i, query in enumerate(self.queries):
            together.add_edge(i, ("task", task_of(query)))
            if self.texts is not None and self.texts[i]:
                together.add_edge(i, ("text", self.texts[i]))
        found = np.empty(len(self.queries), dtype=np.int64)
        # In order of each part's first query, so that numbers do not depend on how a graph is walked.
        parts = [
            sorted(one for one in part if isinstance(one, int)) for part in nx.connected_components(together)
        ]
        for number, part in enumerate(sorted(parts)):
            found[part] = number
        return found

    def refuse_shared(self, other: OutcomeTable) -> None:
        """Refuse to choose on ``other`` what is measured here. Raises BadInput for a shared task or text."""
        tasks, texts = set(map(task_of, other.queries)), set(other.texts or ()) - {None, ""}
        mine = zip(self.queries, self.texts or (None,) * len(self.queries), strict=True)
        shared = sorted(name for name, text in mine if task_of(name) in tasks or text in texts)
        if shared:
            raise BadInput(
                f"{len(shared)} of {len(self.queries)} queries are of tasks or texts of the other table, "
                f"first {shared[0]!r}",
                hint="test on queries that nothing was chosen on",
            )

    def check_fit(
        self,
        workers: Sequence[str] | None = None,
        *,
        tests: Collection[str] = (),
        cold: Collection[str] = (),
        uneven: bool = False,
    ) -> None:
        """Refuse what must not be fitted on. Every fit calls it before it begins.

        ``workers`` are those that the fitted router will choose among; ``cold`` names the ones among them
        that may be without any outcome; ``tests`` are queries or tasks kept for the test. ``uneven`` lets
        missing outcomes and unequal repeats pass, for a fit that weights queries by what was measured.

        Raises: BadInput for fewer than two workers; a worker without outcomes that is not named in ``cold``;
        a query that lacks a worker's outcomes; unequal repeats without weights; rewards that are all
        equal; or a query of a test task.
        """
        named = list(workers if workers is not None else self.workers)
        if len(named) < 2:
            raise BadInput(f"a pool of {len(named)} leaves nothing to choose")
        counts = self.counts()
        seen = [name for name in named if name in self.workers and counts[:, self.workers.index(name)].any()]
        unseen = [name for name in named if name not in seen and name not in cold]
        if unseen:
            raise BadInput(
                f"worker {unseen[0]!r} has no outcome in the table",
                hint="collect some, leave it out, or say that it starts cold",
            )
        # By task: another turn of a test task gives the test away as well.
        kept = set(map(task_of, tests))
        leaked = sorted(query for query in self.queries if task_of(query) in kept)
        if leaked:
            raise BadInput(
                f"{len(leaked)} queries to fit are of test tasks, first {leaked[0]!r}",
                hint="fit on the other part only: table.split(rng)",
            )
        used = [self.workers.index(name) for name in seen]
        if np.ptp(self.reward[np.isin(self.worker, used)]) == 0:
            raise BadInput("all rewards are equal: there is nothing to learn")
        if not uneven:
            self._check_repeats(counts[:, used], used)

    def _check_repeats(self, counts: Int[np.ndarray, "queries used"], used: Sequence[int]) -> None:
        if (counts == 0).any():
            q, w = np.argwhere(counts == 0)[0]
            raise BadInput(
                f"query {self.queries[q]!r} has no outcome of worker {self.workers[used[w]]!r}",
                hint="collect it, or select the queries that have all workers",
            )
        if self.weight is None and counts.min() != counts.max():
            raise BadInput(
                f"queries and workers have {counts.min()} to {counts.max()} repeats and no weights",
                hint="give a weight column, or make the repeats equal",
            )


def task_of(query: str) -> str:
    """The task of a query: what stands before ``#``, all of it where there is none.

    Turns of one task (``TASK#TURN/RUN``) are never spread over a fit and its test.
    """
    return query.partition("#")[0]


def _column(values: Sequence[float | None]) -> Float[np.ndarray, "rows"]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _of_queries(rows: Sequence[Outcome], name: str) -> dict[str, Any]:
    """What rows say of their queries; two different things of one are refused."""
    found: dict[str, Any] = {}
    for row in rows:
        value = getattr(row, name)
        if value is not None and found.setdefault(row.query, value) != value:
            raise BadInput(f"query {row.query!r} has two different {name} entries")
    return found


def _features(
    known: dict[str, tuple[float, ...]], queries: Sequence[str]
) -> Float[np.ndarray, "queries d"] | None:
    if not known:
        return None
    missing = next((name for name in queries if name not in known), None)
    if missing is not None:
        raise BadInput(f"query {missing!r} has no features and others have")
    if len({len(known[name]) for name in queries}) != 1:
        raise BadInput("queries have features of different lengths")
    return np.array([known[name] for name in queries], dtype=np.float64)


def _keep(names: tuple[str, ...], wanted: Collection[str] | None, what: str) -> Int[np.ndarray, "kept"]:
    if wanted is None:
        return np.arange(len(names))
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise BadInput(f"there is no {what} {unknown[0]!r} in the table")
    return np.array([i for i, name in enumerate(names) if name in set(wanted)], dtype=np.int64)


# Outcome tables as files: CSV, JSON lines or Parquet, told apart by the ending.
#
# Columns are ``query, worker, reward`` and, where known, ``cost, latency, repeat, weight, text``,
# ``features``
# (in CSV one column per number: ``f0, f1, ...``). An empty cell is unknown, not 0.

_COLUMNS = ("query", "worker", "reward", "cost", "latency", "repeat", "weight", "text")


def read_table(
    path: Path, *, workers: Sequence[str] | None = None, low: float = 0.0, high: float = 1.0
) -> OutcomeTable:
    """The outcome table of a ``.csv``, ``.jsonl`` or ``.parquet`` file.

    Raises: BadInput for another ending, a missing or unknown column, a value that is no number, or what
    :class:`OutcomeTable` refuses; MissingExtra for Parquet without pyarrow.
    """
    if not path.exists():
        raise BadInput("there is no such file", where=str(path))
    reader = _pick(path, _READERS)
    try:
        return OutcomeTable.of(
            (_outcome(place, body) for place, body in reader(path)), workers=workers, low=low, high=high
        )
    except UnicodeDecodeError as error:
        raise no_text(error, str(path)) from error


def write_table(table: OutcomeTable, path: Path) -> None:
    """Write a table whole or not at all. Raises: as :func:`read_table`."""
    writer = _pick(path, _WRITERS)
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer(part, table)
    part.replace(path)


def read_shares(path: Path, table: OutcomeTable) -> Float[np.ndarray, "queries workers"]:
    """A router's probabilities for the queries of a table: CSV with ``query`` and one column per worker.

    Raises: BadInput for a column that is no worker, a worker or query without one, a query twice, or a number
    that is no probability.
    """
    place = {name: i for i, name in enumerate(table.queries)}
    found = np.full((len(table.queries), len(table.workers)), np.nan)
    for where, row in _read_csv(path):
        if set(row) != {"query", *table.workers}:
            raise BadInput(f"the columns must be query and {', '.join(table.workers)}", where=str(path))
        query = row["query"]
        if query in place:
            if not np.isnan(found[place[query]]).all():
                raise BadInput(f"query {query!r} is there twice", where=where)
            found[place[query]] = [_need(row[name], name, where) for name in table.workers]
    missing = np.flatnonzero(np.isnan(found).any(axis=1))
    if missing.size:
        raise BadInput(f"query {table.queries[missing[0]]!r} has no probabilities", where=str(path))
    return found


def _pick(path: Path, known: Mapping[str, Any]) -> Any:
    if path.suffix not in known:
        raise BadInput(
            f"{path.suffix or 'no ending'} is not a kind of table", where=str(path), hint=", ".join(known)
        )
    return known[path.suffix]


def _outcome(place: str, body: Mapping[str, Any]) -> Outcome:
    features = body.get("features")
    # By number: as text f10 would stand before f2.
    numbered = sorted((k for k in body if k[:1] == "f" and k[1:].isdigit()), key=lambda k: int(k[1:]))
    unknown = sorted(set(body) - {*_COLUMNS, "features", *numbered})
    if unknown:
        known = ", ".join((*_COLUMNS, "features"))
        raise BadInput(f"unknown column {unknown[0]!r}", where=place, hint=f"columns: {known}")
    for name in ("query", "worker", "reward"):
        if body.get(name) in (None, ""):
            raise BadInput(f"{name} is missing", where=place, hint="leave out rows that were not graded")
    if numbered and any(body[k] not in (None, "") for k in numbered):
        features = [body[k] for k in numbered]
    repeat = _number(body.get("repeat"), "repeat", place)
    if repeat is not None and not (repeat.is_integer() and abs(repeat) < 1 << 53):
        raise BadInput(f"repeat is {repeat}; it must be a whole number", where=place)
    text = body.get("text")
    return Outcome(
        str(body["query"]),
        str(body["worker"]),
        _need(body["reward"], "reward", place),
        cost=_number(body.get("cost"), "cost", place),
        latency=_number(body.get("latency"), "latency", place),
        repeat=int(repeat or 0),
        text=None if text in (None, "") else str(text),
        features=None if features is None else tuple(_need(f, "a feature", place) for f in features),
        weight=_number(body.get("weight"), "weight", place),
    )


def _number(value: Any, name: str, place: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or isinstance(value, bool):
        raise BadInput(f"{name} is {value!r}; it must be a number", where=place, hint="empty where unknown")
    return number


def _need(value: Any, name: str, place: str) -> float:
    number = _number(value, name, place)
    if number is None:
        raise BadInput(f"{name} is missing", where=place)
    return number


def _read_csv(path: Path) -> Iterator[tuple[str, Json]]:
    if not path.exists():
        raise BadInput("there is no such file", where=str(path))
    with path.open(encoding="utf-8-sig", newline="") as stream:  # spreadsheets write a byte order mark
        reader = csv.DictReader(stream)
        names = reader.fieldnames or []
        if len(set(names)) < len(names):
            raise BadInput("two columns have one name", where=f"{path}:1")
        for row in reader:
            if None in row or None in row.values():
                raise BadInput("this row has not one cell for each column", where=f"{path}:{reader.line_num}")
            yield f"{path}:{reader.line_num}", row


def _write_csv(path: Path, table: OutcomeTable) -> None:
    width = 0 if table.features is None else table.features.shape[1]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*_COLUMNS, *(f"f{i}" for i in range(width))])
        for row in table.rows():
            body = asdict(row)
            writer.writerow([*(body[name] for name in _COLUMNS), *(row.features or ())])


def _read_jsonl(path: Path) -> Iterator[tuple[str, Json]]:
    with path.open(encoding="utf-8-sig") as stream:
        yield from json_objects(stream, str(path))


def _write_jsonl(path: Path, table: OutcomeTable) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in table.rows():
            body = {name: value for name, value in asdict(row).items() if value is not None}
            stream.write(json.dumps(body, ensure_ascii=False) + "\n")


def _read_parquet(path: Path) -> Iterator[tuple[str, Json]]:
    parquet = _parquet()
    try:
        rows = parquet.read_table(path).to_pylist()
    except Exception as error:  # pyarrow's own errors share no base that it documents
        raise BadInput(f"this is no Parquet file: {error}", where=str(path)) from error
    for number, row in enumerate(rows, 1):
        yield f"{path}:{number}", row


def _write_parquet(path: Path, table: OutcomeTable) -> None:
    parquet = _parquet()
    import pyarrow

    rows = [asdict(row) for row in table.rows()]
    kinds = {
        "query": pyarrow.string(),
        "worker": pyarrow.string(),
        "repeat": pyarrow.int64(),
        "text": pyarrow.string(),
        "features": pyarrow.list_(pyarrow.float64()),
    }
    names = (*_COLUMNS, "features")
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in names])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "export") from error
    return pyarrow.parquet


_READERS: dict[str, Callable[[Path], Iterable[tuple[str, Json]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
_WRITERS: dict[str, Callable[[Path, OutcomeTable], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
