from __future__ import annotations

import json

import pytest

from forensics.case_parts import ENVIRONMENT, counted, full, incident, planned
from refork.errors import BadInput
from refork_methods.forensics import Case, Design, EvidenceItem, Hypothesis, Intervention, Prediction, trend
from refork_methods.forensics.commands.case import app
from support.command import runner

PLAN = {
    "name": "hook",
    "environment": ENVIRONMENT,
    "model": {"name": "agent"},
    "target": {"action": "skips the hook"},
    "designs": [{"name": "no errors", "edit": {"path": "settings.errors", "value": 0}}],
    "hypotheses": [
        {
            "name": "tedium",
            "statement": "It avoids dull work.",
            "predictions": [{"design": "no errors", "quantity": "difference", "high": -0.1}],
        }
    ],
}


forensics = runner(app)


def test_open_registers_once(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    case = tmp_path / "case"
    assert "1 hypotheses with 1 predictions" in forensics("open", case, "--from", plan)
    told = json.loads(forensics("open", case, "--json"))
    assert (told["new"], told["designs"], told["entries"]) == (False, 1, 4)
    assert forensics("open", case, "--from", plan).startswith("case 'hook'")
    with pytest.raises(BadInput, match="no case here"):
        forensics("open", tmp_path / "other")
    with pytest.raises(BadInput, match="no such file"):
        forensics("open", case, "--from", tmp_path / "none.toml")


def test_table_prints_and_tells_a_malign_motive_by_its_status(tmp_path):
    full(Case.create(tmp_path / "a", incident()))
    text = forensics("table", tmp_path / "a", "--likelihood")
    assert "1  tedium: 1 consistent" in text
    assert "inconsistent" in text
    assert "One line of evidence points to 'tedium'" in text
    told = json.loads(forensics("table", tmp_path / "a", "--json"))
    assert told["leading"] == ["tedium"]
    case = planned(Case.create(tmp_path / "b", incident(base=counted("base", 60, 100))))
    probe = Design.counterfactual(Intervention.edit("settings.source", "watched"))
    case.add_design(probe)
    case.predict("spite", Prediction(probe.id, "difference", -1.0, -0.1))
    from refork_methods.forensics import difference

    shift = difference(counted("base", 60, 100), counted("watched", 10, 100))
    case.add_evidence(EvidenceItem("watched", probe.id, "rollouts", shift))
    assert "'spite'" in forensics("table", tmp_path / "b", status=1)


def test_report_writes_a_document_and_a_page(tmp_path):
    case = full(Case.create(tmp_path, incident()))
    sweep = Design.dose_response("settings.errors", [0, 100, 258], now=258)
    case.add_design(sweep)
    case.predict("tedium", Prediction(sweep.id, "trend", 2.0))
    arms = [counted(a.name, k, 100, dose=a.dose) for a, k in zip(sweep.arms, (0, 20, 60), strict=True)]
    case.add_evidence(EvidenceItem("errors", sweep.id, "rollouts", trend(arms), ("grader",), note="<b>"))
    case.add_hypothesis(Hypothesis("idle", "Nothing in particular."))
    files = json.loads(forensics("report", tmp_path, "--likelihood", "--json"))
    assert set(files) == {"json", "page"}
    page = (tmp_path / "report.html").read_text()
    assert page.count("<figure>") == 2
    assert "&lt;b&gt;" in page
    assert "most consistent with" in page
    assert "untested" in page
    assert json.loads((tmp_path / "case.json").read_text())["table"]["rows"][1]["quantity"] == "trend"
    assert str(tmp_path / "report.html") in forensics("report", tmp_path)
