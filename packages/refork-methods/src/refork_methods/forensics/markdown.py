"""A case as Markdown: the verdict first, then the table, what was edited, and what is still open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from refork.types import Json

_SIGNS = {"consistent": "consistent", "inconsistent": "**inconsistent**", "weak": "weak", None: ""}
_UNITS = {"rate": " %", "difference": " points", "interaction": " points", "ratio": " times"}
#: What an estimate is called where the quantity's own name would not say it.
NAMES = {"trend": "trend z", "scale": "chance to score higher"}
#: Forks of one arm that are linked; the JSON document has all.
_MOST_LINKS = 8


def case_markdown(report: Json) -> str:
    """The text of a case that :func:`refork_methods.forensics.export.case_json` gave."""
    parts = [
        *_head(report), *_table(report["table"]), *_likelihoods(report["table"]), *_designs(report),
        *_hypotheses(report["hypotheses"]), *_standards(report["standards"]), *_foot(report),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def figure(value: Any, quantity: str = "rate", unit: bool = True) -> str:
    """A rate in percent, a difference of rates in points, anything else as a short number."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value.replace("Infinity", "inf")
    if quantity in ("rate", "difference", "interaction"):
        sign = "" if quantity == "rate" else "+"
        return f"{100 * value:{sign}.1f}" + (_UNITS[quantity] if unit else "")
    return f"{value:.2f}" + (_UNITS.get(quantity, "") if unit else "")


def span(row: Json) -> str:
    """An estimate with its interval and its unit."""
    middle, low, high = (figure(row[end], row["quantity"], unit=False) for end in ("estimate", "low", "high"))
    return f"{middle} [{low}, {high}]{_UNITS.get(row['quantity'], '')}"


def rate_words(arm: Json | None) -> str:
    """An arm's rate, its interval and everything that is not among its runs."""
    if arm is None or arm["rate"] is None:
        return "no finished rollout"
    told = f"{arm['hits']} of {arm['runs']}, {span({**arm, 'estimate': arm['rate'], 'quantity': 'rate'})}"
    unfinished = "not counted" if arm["unfinished"] is None else str(arm["unfinished"])
    asked = "not counted" if arm["asked"] is None else str(arm["asked"])
    return f"{told}; asked {asked}, unfinished {unfinished}, failed {arm['failed']}"


def locations(concern: Json, most: int = 4) -> str:
    """Where one thing is wrong, the first few places named."""
    found = concern["where"]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def _cell(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _grid(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(_cell(c) for c in line)} |" for line in lines] + [""]


def _head(told: Json) -> list[str]:
    incident = told["incident"]
    weights = incident["model"]["weights"]
    lines = [f"# Case: {told['name']}", "", told["table"]["verdict"], ""]
    if told["question"]:
        lines += [f"Question: {told['question']}", ""]
    lines += [
        f"- Subject: {incident['model']['name']}" + (f" (`{weights[:12]}`)" if weights else ""),
        f"- Environment: `{incident['environment_id'][:12]}`",
        f"- Action: {incident['target']['action']}, graded by {incident['target']['grader']['name']} "
        f"{incident['target']['grader']['version']} (`{incident['grader_id'][:12]}`)",
        f"- Base rate: {rate_words(told['base'])}",
        *(f"- Rollout: {_link(address)}" for address in incident["links"][:_MOST_LINKS]),
        *(f"- {note}" for note in incident["notes"]),
        "",
    ]
    concerns = told["table"]["concerns"]
    if concerns:
        lines += ["## Read this first", ""]
        lines += [f"- {c['kind']}: {c['words']} ({locations(c)})" for c in concerns] + [""]
    return lines


def _link(address: str) -> str:
    tree, _, node = address.rpartition("#")
    if not tree:
        return f"`{node[:12]}`"
    return f"[`{node[:12]}`](<{address}>)"


def _table(table: Json) -> list[str]:
    names = [standing["hypothesis"] for standing in table["standings"]]
    rows = []
    for row in table["rows"]:
        marks = [row["marks"][name] for name in names]
        cells = [_SIGNS[m["mark"]] + (" (post hoc)" if m["post_hoc"] else "") for m in marks]
        negative = row["negative"]["words"] if row["negative"] else ""
        p = "-" if row["p_holm"] is None else f"{row['p_holm']:.3g}"
        group = f"{', '.join(row['confounds']) or 'none listed'} (group {row['group'] + 1})"
        name = NAMES.get(row["quantity"], row["quantity"])
        rows.append([row["name"], f"{name} {span(row)}", p, *cells, negative, group])
    lines = ["## Competing hypotheses", ""]
    if rows:
        lines += _grid(["evidence", "result", "p (Holm)", *names, "as a negative", "confounds"], rows)
        lines += ["Rows of one group share a confound and count once.", ""]
    else:
        lines += ["No evidence yet.", ""]
    standings = [
        [s["rank"] or "untested", s["hypothesis"], s["consistent"], s["inconsistent"], s["weak"]]
        for s in table["standings"]
    ]
    if standings:
        lines += _grid(["rank", "hypothesis", "consistent", "inconsistent", "weak"], standings)
    return lines


def _likelihoods(table: Json) -> list[str]:
    pairs = table["likelihoods"]
    if not pairs:
        return []
    rows = [
        [p["first"], p["second"], "-" if p["ratio"] is None else f"{p['ratio']:+.1f}", p["groups"]]
        for p in pairs
    ]
    return [
        "## Likelihood ratios", "",
        "Nats in favour of the first; of rows that share a confound the strongest counts.", "",
        *_grid(["first", "second", "log ratio", "groups"], rows),
    ]  # fmt: skip


def _designs(told: Json) -> list[str]:
    lines = ["## What was edited", ""] if told["designs"] else []
    for design in told["designs"]:
        lines += [
            f"### {design['name']}",
            "",
            f"{design['purpose']}, {design['instrument']}, `{design['id'][:12]}`",
            "",
        ]
        rows = []
        for arm in design["arms"]:
            drawn = arm["drawn"]
            links = drawn["links"] if drawn else []
            more = f" and {len(links) - _MOST_LINKS} more" if len(links) > _MOST_LINKS else ""
            where = ", ".join(_link(address) for address in links[:_MOST_LINKS]) + more
            changes = "; ".join(f"{c['kind']} `{c['path']}`" for c in arm["changes"]) or "nothing"
            rows.append([arm["name"], changes, rate_words(drawn) if drawn else "not drawn here", where])
        lines += _grid(["arm", "verified change", "hits", "forks"], rows)
    return lines


def _hypotheses(hypotheses: Sequence[Json]) -> list[str]:
    lines = ["## Hypotheses", ""]
    for one in hypotheses:
        malign = " (malign)" if one["malign"] else ""
        lines += [f"### {one['name']}{malign}", "", one["statement"], ""]
        lines += [f"- entry {p['entry']}: {prediction_words(p)}" for p in one["predictions"]]
        lines += [""] if one["predictions"] else []
    return lines


def prediction_words(report: Json) -> str:
    """A prediction as it was registered."""
    if report["quantity"] == "curve":
        region = f"every rate within {figure(report['tolerance'])} of its predicted one"
    else:
        low, high = (figure(report[end], report["quantity"]) for end in ("low", "high"))
        if report["high"] is None:
            region = f"{report['quantity']} at least {low}"
        else:
            region = f"{report['quantity']} " + (
                f"at most {high}" if report["low"] is None else f"from {low} to {high}"
            )
    return f"{report['words']}: {region}" if report["words"] else region


def _standards(standards: Sequence[Json]) -> list[str]:
    rows = [
        [
            s["name"],
            s["question"],
            s["status"],
            "; ".join(filter(None, [s["note"], ", ".join(s["evidence"])])),
        ]
        for s in standards
    ]
    still = sum(s["status"] in ("open", "not met") for s in standards)
    return ["## Standards", "", f"{still} of {len(standards)} are open or not met.", "",
            *_grid(["standard", "question", "status", "note"], rows)]  # fmt: skip


def _foot(told: Json) -> list[str]:
    journal = told["journal"]
    return [f"Journal: {journal['entries']} entries in `{journal['file']}`, head `{journal['head']}`."]
