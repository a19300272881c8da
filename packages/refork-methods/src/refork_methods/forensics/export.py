"""A case as one JSON document: everything on record, everything computed, and where the rollouts are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refork.plain import to_json
from refork.stats import Interval
from refork.types import Json
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.case import FILE, Case
from refork_methods.forensics.design import Design
from refork_methods.forensics.hypothesis import Hypothesis
from refork_methods.forensics.rules import Concern
from refork_methods.forensics.table import Row, Table

#: Version of this document's layout.
LAYOUT = 1
#: A case's own tree, where the incident names none.
TREE = "tree.db"


def case_json(case: Case, *, likelihood: bool = False) -> Json:
    """The case as plain JSON data; the same case gives the same document."""
    table = case.table(likelihood=likelihood)
    incident = case.incident
    return {
        "refork_case": LAYOUT,
        "name": incident.name,
        "question": incident.question,
        "incident": {
            **{k: v for k, v in to_json(incident).items() if k != "base"},
            "environment_id": incident.environment_id,
            "subject": incident.subject,
            "grader_id": incident.target.grader.id,
            "links": [link(case, node) for node in incident.nodes],
        },
        "base": None if case.base is None else arm_json(case, case.base),
        "designs": [_design(case, design) for design in case.designs],
        "hypotheses": [_hypothesis(case, hypothesis) for hypothesis in case.hypotheses],
        "table": table_json(case, table),
        "controls": {name: arm_json(case, arm) for name, arm in sorted(case.controls.items())},
        "standards": [to_json(standard) for standard in case.standards()],
        "journal": {"file": FILE, "entries": len(case.journal), "head": case.journal.head},
    }


def link(case: Case, address: str) -> str:
    """Where a node or fork is: the tree file, as the case's folder sees it, and the id."""
    tree = case.incident.tree
    if tree is None and case.folder is not None and (case.folder / TREE).exists():
        tree = TREE
    return f"{tree or ''}#{address}"


def arm_json(case: Case, arm: Arm) -> Json:
    """An arm with its rate, interval, bounds and the addresses of its forks."""
    found = arm.interval() if arm.runs else None
    return {
        **to_json(arm),
        "rate": None if found is None else found.estimate,
        "low": None if found is None else found.low,
        "high": None if found is None else found.high,
        "total": arm.total,
        "bounds": list(arm.bounds()) if arm.total else None,
        "links": [link(case, address) for address in arm.forks or arm.nodes],
    }


def _design(case: Case, design: Design) -> Json:
    changes = case.state.changes[design.id]
    arms = []
    for plan in design.arms:
        drawn = case.arm(plan)
        arms.append(
            {
                "name": plan.name,
                "dose": plan.dose,
                "intervention": {"id": plan.intervention.id, **to_json(plan.intervention)},
                "changes": [to_json(change) for change in changes[plan.name]],
                "drawn": arm_json(case, drawn) if drawn.total else None,
            }
        )
    return {
        "id": design.id, "name": design.name, "purpose": design.purpose, "instrument": design.instrument,
        "arms": arms,
    }  # fmt: skip


def _hypothesis(case: Case, hypothesis: Hypothesis) -> Json:
    entries = list(case.journal)
    told = []
    for prediction in hypothesis.predictions:
        entry = entries[case.state.predicted_at[hypothesis.name, prediction.id]]
        told.append(
            {"id": prediction.id, **to_json(prediction), "entry": entry.n, "time": entry.time,
             "entry_id": entry.id}
        )  # fmt: skip
    return {
        "name": hypothesis.name, "statement": hypothesis.statement, "malign": hypothesis.malign,
        "predictions": told,
    }  # fmt: skip


def table_json(case: Case, table: Table) -> Json:
    """The table of competing hypotheses as plain data."""
    return {
        "verdict": table.verdict,
        "leading": list(table.leading),
        "malign": table.malign,
        "standings": [to_json(standing) for standing in table.standings],
        "rows": [_row(case, row) for row in table.rows],
        "concerns": _concerns(table.concerns),
        "likelihoods": None if table.likelihoods is None else [to_json(pair) for pair in table.likelihoods],
    }


def _concerns(concerns: Sequence[Concern]) -> list[Json]:
    """Each thing that is wrong once, with every place where it is."""
    found: dict[tuple[str, str, str, str | None], list[str]] = {}
    for one in concerns:
        found.setdefault((one.rule, one.kind, one.words, one.hint), []).append(one.where)
    return [
        {"rule": rule, "kind": kind, "words": words, "hint": hint, "where": where}
        for (rule, kind, words, hint), where in found.items()
    ]


def _row(case: Case, row: Row) -> Json:
    item, found = row.item, row.item.result
    design = case.state.designs[item.design]
    strength: dict[str, Any] | None = None
    if row.negative is not None:
        told = row.negative
        strength = {**to_json(told), "informative": told.informative, "words": told.words}
    return {
        "name": item.name, "design": item.design, "design_name": design.name, "purpose": design.purpose,
        "instrument": item.instrument, "quantity": found.quantity, **_interval(found.interval),
        "p": found.p, "p_holm": row.p_holm, "method": found.method, "bounded": found.bounded,
        "arms": [arm_json(case, arm) for arm in found.arms], "confounds": list(item.confounds),
        "group": row.group, "looked_for": item.looked_for, "upper_bound": item.upper_bound,
        "negative": strength, "note": item.note,
        "marks": {name: {"mark": cell.mark, "post_hoc": cell.post_hoc} for name, cell in row.cells.items()},
    }  # fmt: skip


def _interval(found: Interval) -> Json:
    told: Json = to_json(found)
    return {key: told[key] for key in ("estimate", "low", "high", "level")}
