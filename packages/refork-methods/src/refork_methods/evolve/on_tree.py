"""Records on a rollout tree: a judge in a slot and epoch is a producer, and erasure is its retirement.

A producer names slot, judge and epoch, so that a judge that comes back later is another producer, and its
earlier scores stay retired. What a producer derived from a judge's scores dies with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from refork.errors import BadInput
from refork.tree import Producer, Retirement, Score, Tree
from refork.tree.scoring import chain
from refork_methods.evolve.records import Cell, EvaluatorSlot, UtilityRecord

UTILITY_VERSION = "1"


def slot_producer(slot: EvaluatorSlot) -> Producer:
    """Who gives the scores of a slot as it stands."""
    config = {"judge": slot.judge, "epoch": slot.epoch}
    return Producer(f"slot:{slot.name}", UTILITY_VERSION, config)


def fixed_producer(judge: str) -> Producer:
    """Who gives the scores of fixed cells: a test or a labelled set, by its name."""
    return Producer(f"fixed:{judge}", UTILITY_VERSION)


def record_producer(record: UtilityRecord) -> Producer:
    """Who gave a record."""
    if record.cell.slot is None:
        return fixed_producer(record.judge)
    assert record.epoch is not None
    return slot_producer(EvaluatorSlot(record.cell.slot, record.judge, record.epoch))


def score_name(cell: Cell) -> str:
    """The name of a cell's scores: ``utility/role/task``, each part with its own slashes doubled."""
    return "utility/" + "/".join(part.replace("/", "//") for part in (cell.role, cell.task))


def write_records(tree: Tree, records: Iterable[UtilityRecord], node_ids: Mapping[str, str]) -> int:
    """Store records as scores of their artifacts' nodes, all or nothing; how many are new.

    ``node_ids``: the tree node of each artifact key. A record that is written again is stored once.

    Raises:
        BadInput: an artifact without a node, a producer that is retired (the record is stale), or another
            outcome than the stored one.
        UnknownNode: a node that is not in the tree.
    """
    given = list(records)
    missing = next((record for record in given if record.artifact not in node_ids), None)
    if missing is not None:
        raise BadInput(
            f"artifact {missing.artifact!r} has no node in the tree", where=f"outcome {missing.n}",
            hint="append the artifact first",
        )  # fmt: skip
    producers = {(one := record_producer(record)).id: one for record in given}
    for producer in producers.values():
        tree.add_producer(producer)
    return tree.add_scores(
        Score(
            node_ids[record.artifact],
            score_name(record.cell),
            float(record.outcome),
            record_producer(record).id,
        )
        for record in given
    )


def would_retire(tree: Tree, producer: str) -> Retirement:
    """What :meth:`Tree.retire` of a producer would take out of sight, derived scores too; writes nothing."""
    live = {one.id: one.reads for one in tree.producers()}
    # A producer that is retired already takes nothing more with it.
    gone = tuple(chain(live, producer)) if producer in live else ()
    lost: dict[str, int] = {}
    for one in gone:
        for score in tree.scores(producer=one):
            lost[score.name] = lost.get(score.name, 0) + 1
    return Retirement(gone, dict(sorted(lost.items())), "")


def live_outcomes(
    tree: Tree, cells: Iterable[Cell], node_ids: Mapping[str, str]
) -> dict[tuple[str, Cell], int]:
    """The outcome of each (artifact, cell) that a reader of the tree sees: none that was erased."""
    found: dict[tuple[str, Cell], int] = {}
    keys = {node: artifact for artifact, node in node_ids.items()}
    for cell in cells:
        for node, value in tree.score_map(score_name(cell), list(keys)).items():
            found[keys[node], cell] = int(value)
    return found
