"""A case file as SARIF 2.1.0, which editors and code scanners show in place."""

from __future__ import annotations

from importlib.metadata import version
from urllib.parse import quote

from refork.types import Json
from refork_methods.localize.casefile import CaseFile, Location

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULE = "refork/suspected-fault"


def case_sarif(case: CaseFile) -> Json:
    """A SARIF log with one run and one result per location, in rank order.

    Results are of level "note": a suspicion that somebody has to look at. ``rank`` (0 to 100) is set only
    where the case holds a calibrated chance.
    """
    rule = {
        "id": RULE,
        "name": "SuspectedFault",
        "shortDescription": {"text": "Lines where an issue's cause may lie."},
        "defaultConfiguration": {"level": "note"},
    }
    run: Json = {
        "tool": {"driver": {"name": "Refork", "semanticVersion": version("refork"), "rules": [rule]}},
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": case.status != "forced"}],
        "results": [_result(number, one) for number, one in enumerate(case.locations, 1)],
        "properties": {"status": case.status, "ranked": case.ranked},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(number: int, one: Location) -> Json:
    text = f"{number}. {one.explanation} Root cause: {one.root_cause} Idea: {one.solution_idea}"
    result: Json = {
        "ruleId": RULE,
        "ruleIndex": 0,
        "level": "note",
        "message": {"text": text},
        "locations": [_place(one)],
        "properties": {"order": number, "testingImpact": list(one.testing_impact)},
    }
    if one.confidence is not None:
        result["rank"] = round(100 * one.confidence, 4)
    if one.dependencies:
        result["relatedLocations"] = [
            {
                "id": n,
                "physicalLocation": {"artifactLocation": _artifact(other.path)},
                "message": {"text": f"{other.symbol}: {other.why}" if other.symbol else other.why},
            }
            for n, other in enumerate(one.dependencies, 1)
        ]
    return result


def _place(one: Location) -> Json:
    place: Json = {
        "physicalLocation": {
            "artifactLocation": _artifact(one.path),
            "region": {"startLine": one.start, "endLine": one.end},
        }
    }
    if one.symbol:
        place["logicalLocations"] = [{"fullyQualifiedName": one.symbol}]
    return place


def _artifact(path: str) -> Json:
    return {"uri": quote(path), "uriBaseId": "SRCROOT"}
