from __future__ import annotations

import json

import pytest
import yaml

from refork.errors import BadInput
from refork_methods.pin.strategies import HeadTail, Summarise
from refork_methods.rot.commands import app
from refork_methods.rot.page import marked
from refork_methods.rot.readers import write_session
from refork_testbed.worlds.house_rules.summarisers import SUMMARISERS
from rot.rot_parts import RULE, recorded
from support.command import runner

rot = runner(app)


@pytest.fixture
def rules(tmp_path):
    fields = {"id": RULE.id, "text": RULE.text, "tool": RULE.tool, "checker": RULE.checker}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [fields]}))
    return tmp_path / "rules.yaml"


def test_audit_finds_a_lost_rule_by_its_status(tmp_path, rules):
    log = write_session(recorded(Summarise(SUMMARISERS["drops-rules"](), 300)), tmp_path / "s.jsonl")
    text = rot("audit", log, "--policy", rules, "--html", tmp_path / "a.html", status=1)
    assert "left out by the summariser; broken at call 10" in text
    page = (tmp_path / "a.html").read_text()
    assert "1 of 1 rules went out of view, 1 was broken" in page
    assert f"<mark>{RULE.text}</mark>" in page
    assert 'class="msg summarised"' in page
    assert 'class="msg written"' in page
    told = json.loads(rot("audit", log, "--policy", rules, "--json", status=1))
    assert told["found"] is True
    assert told["sessions"][0]["rules"][0]["loss"] == "omitted"


def test_audit_of_a_session_that_keeps_its_rules(tmp_path, rules):
    log = write_session(recorded(HeadTail(300)), tmp_path / "s.jsonl")
    rot("audit", log, "--policy", rules, "--html", tmp_path / "a.html")
    assert "No rule was lost, none was broken" in (tmp_path / "a.html").read_text()
    with pytest.raises(BadInput, match="no such file"):
        rot("audit", tmp_path / "none", "--policy", rules)


def test_run_and_report(tmp_path):
    folder = tmp_path / "run"
    common = (
        "--policy", "scripted:rule-agent", "--tasks", "spend,proddb", "--reps", "1", "--max-tokens", "60",
        "--set", "wording=small", "--set", "framing=deprecation", "--set", "turns=8",
    )  # fmt: skip
    assert "episodes: 14" in rot("run", "--out", folder, *common, "--dry-run")
    assert json.loads(rot("run", "--out", folder, *common, "--dry-run", "--json"))["episodes"] == 14
    assert not folder.exists()
    text = rot("run", "--out", folder, *common)
    assert "decay +50" in text
    assert "trim 3, summariser 0, agent 0" in text
    page = (folder / "report.html").read_text()
    assert "No clear decay: +50" in page
    assert page.count("<svg") == 2
    told = json.loads(rot("report", folder, "--json"))
    assert told["page"] == str(folder / "report.html")
    assert "notes" not in told
    assert rot("report", folder).endswith("report.html\n")
    assert json.loads(rot("run", "--out", folder, *common, "--json"))["episodes"] == 14
    with pytest.raises(BadInput, match="no list of numbers"):
        rot("run", "--out", folder, *common, "--words", "many")


def test_an_invalid_cell_is_shown_as_such(tmp_path):
    text = rot(
        "run", "--out", tmp_path, "--policy", "scripted:rule-agent", "--tasks", "spend", "--reps", "1",
        "--conditions", "compaction", "--set", "wording=small",
    )  # fmt: skip
    assert "INVALID" in text
    assert "INVALID" in (tmp_path / "report.html").read_text()


def test_a_rule_is_marked_whole_in_a_cut_text_and_all_is_escaped():
    text = "<b>" + "x" * 2000 + " never <buy> " + "y" * 2000
    shown = str(marked(text, ["never <buy>"]))
    assert "<mark>never &lt;buy&gt;</mark>" in shown
    assert shown.startswith("&lt;b&gt;")
    assert shown.endswith("…")


def test_a_run_without_an_agent_says_how_to_name_one(tmp_path):
    with pytest.raises(BadInput, match="no agent is named"):
        rot("run", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_organism_summarises_by_its_name(tmp_path, monkeypatch):
    asked = []

    def summariser(name, *, progress):
        asked.append(name)
        return SUMMARISERS["keeps-facts"]()

    monkeypatch.setattr("refork_testbed.models.chat.summariser_chat", summariser)
    text = rot(
        "run", "--out", tmp_path / "run", "--policy", "scripted:rule-agent", "--tasks", "spend",
        "--summariser", "organism:summariser", "--compactor", "summarise", "--reps", "1",
        "--max-tokens", "60", "--set", "wording=small", "--conditions", "control,compaction",
    )  # fmt: skip
    assert asked == ["summariser"]
    assert "summariser organism:summariser" in text
