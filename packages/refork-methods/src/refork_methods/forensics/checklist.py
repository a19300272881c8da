"""Which standards a case meets, computed where that can be, and what is still open."""

from __future__ import annotations

from collections.abc import Iterator

from refork_methods.forensics.arm import Arm
from refork_methods.forensics.standards import CAUSES, COMPUTED, ENVIRONMENT, Standard, Status
from refork_methods.forensics.state import State
from refork_methods.forensics.table import Table


def checklist(state: State, table: Table, base: Arm | None) -> tuple[Standard, ...]:
    """Benign causes and marks of the environment as answered, then what the case itself shows."""
    found: list[Standard] = []
    for name, question in {**CAUSES, **ENVIRONMENT}.items():
        answer = state.answers.get(name)
        if answer is None:
            found.append(Standard(name, question, "open"))
        else:
            found.append(Standard(name, question, answer.status, answer.note, answer.evidence))
    computed = dict(_computed(state, table, base))
    for name, question in COMPUTED.items():
        met, note = computed[name]
        status: Status = "open" if met is None else "met" if met else "not met"
        found.append(Standard(name, question, status, note))
    return tuple(found)


def _computed(state: State, table: Table, base: Arm | None) -> Iterator[tuple[str, tuple[bool | None, str]]]:
    """Each computed standard: met, not met, or None while there is nothing to judge by."""
    rows = table.rows
    arms = [arm for row in rows for arm in row.item.result.arms]
    purposes = {state.designs[row.item.design].purpose for row in rows}
    yield (
        "base rate",
        _of(
            None if base is None else base.runs > 0,
            "" if base is None else f"{base.hits} of {base.runs}",
        ),
    )
    late = [r.item.name for r in rows if not any(c.mark and not c.post_hoc for c in r.cells.values())]
    yield "predictions first", _of(not late if rows else None, ", ".join(late))
    tested = [s.hypothesis for s in table.standings if s.rank is not None]
    yield "several hypotheses", _of(len(tested) >= 2 if rows else None, f"{len(tested)} tested")
    lines = max((s.consistent for s in table.standings if s.rank == 1), default=0)
    yield "independent lines", _of(lines >= 2 if rows else None, f"{lines}")
    bare = [r.item.name for r in rows if not r.item.confounds]
    yield "confounds listed", _of(not bare if rows else None, ", ".join(bare))
    yield "control setting", _of("control setting" in purposes or None)
    yield "control model", _of("control model" in purposes or None)
    searches = {r.item.instrument for r in rows if r.item.looked_for is not None}
    blind = sorted(searches - set(state.controls))
    yield "positive control", _of(not blind if searches else None, ", ".join(blind))
    counted = [arm.name for arm in arms if arm.unfinished is None]
    yield "rollouts accounted", _of(not counted if arms else None, ", ".join(dict.fromkeys(counted)))
    graders = {arm.grader for arm in arms}
    yield "one grader", _of(len(graders) == 1 and None not in graders if arms else None)


def _of(met: bool | None, note: str = "") -> tuple[bool | None, str]:
    return met, note
