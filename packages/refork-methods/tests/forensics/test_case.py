from __future__ import annotations

import json
from dataclasses import replace

import pytest

from forensics.case_parts import (
    DESIGN,
    EDIT,
    arms,
    counted,
    drawn,
    full,
    incident,
    item,
    memory,
    outcomes,
    planned,
    spite,
    tedium,
)
from refork.errors import BadInput, DiskFull, DrawConflict, Mismatch
from refork_methods.forensics import (
    Answer,
    ArmPlan,
    Case,
    Design,
    EvidenceItem,
    Hypothesis,
    Intervention,
    Outcome,
    Prediction,
    rate,
)
from refork_methods.forensics.case import FILE
from refork_methods.journal import Journal


def test_a_case_is_read_back_as_it_was_written(tmp_path):
    case = full(Case.create(tmp_path / "case", incident()))
    again = Case.open(tmp_path / "case")
    assert again.incident == case.incident
    assert again.hypotheses == case.hypotheses
    assert again.designs == case.designs
    assert again.evidence == case.evidence
    assert again.table() == case.table()
    assert again.journal.head == case.journal.head


def test_a_folder_holds_one_case(tmp_path):
    Case.create(tmp_path, incident())
    with pytest.raises(Mismatch, match="already"):
        Case.create(tmp_path, incident())
    with pytest.raises(BadInput, match="no case here"):
        Case.open(tmp_path / "other")


def test_a_case_that_a_crash_left_empty_can_be_begun(tmp_path):
    for left in (b"", b'{"n":0,"kind":"inci'):
        (tmp_path / FILE).write_bytes(left)
        with pytest.raises(BadInput, match="never begun"):
            Case.open(tmp_path)
        Case.create(tmp_path, incident())
        assert Case.open(tmp_path).incident == incident()


def test_a_line_cut_short_by_a_crash_never_counted(tmp_path):
    case = full(Case.create(tmp_path, incident()))
    file = tmp_path / FILE
    whole = file.read_bytes()
    for cut in (1, 40, len(whole) - whole[:-1].rfind(b"\n") - 2):
        file.write_bytes(whole[:-cut])
        torn = Case.open(tmp_path)
        assert len(torn.journal) == len(case.journal) - 1
        assert not torn.evidence
        torn.add_evidence(item(*arms(torn)))
        assert [e.kind for e in Case.open(tmp_path).journal][-1] == "evidence"
        assert len(Case.open(tmp_path).journal) == len(case.journal)


def test_a_changed_entry_is_noticed(tmp_path):
    full(Case.create(tmp_path, incident()))
    file = tmp_path / FILE
    lines = file.read_text().splitlines(keepends=True)
    entry = json.loads(lines[1])
    entry["time"] += 1
    for bad in (
        [lines[0], json.dumps(entry) + "\n", *lines[2:]],
        [lines[0], *lines[2:]],
        [lines[0], lines[2], lines[1], *lines[3:]],
    ):
        file.write_text("".join(bad))
        with pytest.raises(Mismatch, match="was changed"):
            Case.open(tmp_path)
    file.write_text("".join(lines[:2]) + "{not json}\n")
    with pytest.raises(BadInput, match="not JSON"):
        Case.open(tmp_path)


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    case = planned(Case.create(tmp_path, incident()))
    before = (tmp_path / FILE).read_bytes()

    def broken(_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", broken)
        with pytest.raises(DiskFull, match="no space left"):
            case.record(DESIGN.arms[0], outcomes(1, 1))
    assert (tmp_path / FILE).read_bytes() == before
    assert case.missing(DESIGN.arms[0], 2) == [0, 1]
    assert case.record(DESIGN.arms[0], outcomes(1, 1)) == 2
    assert Case.open(tmp_path).arms(DESIGN)[0].runs == 2
    (tmp_path / FILE).unlink()
    with pytest.raises(Mismatch, match="is gone"):
        case.record(DESIGN.arms[1], outcomes(1, 1))


def test_time_never_falls():
    clock = iter([5.0, 3.0, 9.0])
    journal = Journal(clock=lambda: next(clock))
    assert [journal.append("note", {}).time for _ in range(3)] == [5.0, 5.0, 9.0]


def test_work_on_record_is_not_done_again():
    case = planned(memory())
    base = DESIGN.arms[0]
    assert case.missing(base, 3) == [0, 1, 2]
    assert case.record(base, {1: Outcome("hit", node="x")}) == 1
    assert case.missing(base, 3) == [0, 2]
    before = len(case.journal)
    assert case.record(base, {1: Outcome("hit", node="x")}) == 0
    assert len(case.journal) == before
    with pytest.raises(DrawConflict):
        case.record(base, {1: Outcome("miss", node="x")})
    # Another intervention, or another arm, is other work.
    assert case.missing(DESIGN.arms[1], 2) == [0, 1]
    assert case.missing(ArmPlan("probe", Intervention.none()), 2) == [0, 1]


def test_outcomes_are_counted_apart():
    case = planned(memory())
    case.record(DESIGN.arms[0], outcomes(5, 4, asked=3, unfinished=2, failed=1))
    arm = case.arm(DESIGN.arms[0])
    assert (arm.hits, arm.runs, arm.asked, arm.unfinished, arm.failed, arm.total) == (5, 12, 3, 2, 1, 15)
    assert arm.bounds() == pytest.approx((5 / 15, 8 / 15))
    assert case.base == arm
    assert len(arm.nodes) == 15
    assert arm.forks == ("f" * 32,)
    words = " ".join(c.words for c in case.concerns())
    assert "2 of 15 rollouts were cut off" in words


def test_an_arm_has_one_grader_and_one_model():
    case = planned(memory())
    case.record(DESIGN.arms[0], {0: Outcome("hit")})
    with pytest.raises(BadInput, match="one grader"):
        case.record(DESIGN.arms[0], {1: Outcome("hit")}, grader="other")


def test_a_result_nobody_predicted_is_refused():
    case = memory()
    case.add_design(DESIGN)
    drawn(case)
    with pytest.raises(BadInput, match="before its result"):
        case.add_evidence(item(*arms(case)))


def test_a_prediction_after_the_draws_is_post_hoc():
    case = memory()
    case.add_design(DESIGN)
    case.add_hypothesis(tedium())
    drawn(case)
    case.add_hypothesis(spite())
    case.add_evidence(item(*arms(case)))
    cells = case.table().rows[0].cells
    assert not cells["tedium"].post_hoc
    assert cells["spite"].post_hoc
    assert cells["spite"].mark == "inconsistent"
    standing = {s.hypothesis: s for s in case.table().standings}
    assert standing["spite"].rank is None
    assert standing["tedium"].rank == 1


def test_only_late_predictions_make_a_post_hoc_row():
    case = memory()
    case.add_design(DESIGN)
    drawn(case)
    case.add_hypothesis(tedium())
    row = item(*arms(case))
    with pytest.raises(BadInput, match="post_hoc=True"):
        case.add_evidence(row)
    case.add_evidence(row, post_hoc=True)
    assert case.table().rows[0].cells["tedium"].post_hoc
    assert "No verdict" in case.table().verdict
    assert {s.name: s.status for s in case.standards()}["predictions first"] == "not met"


def test_draws_of_the_base_do_not_make_a_prediction_late():
    case = memory()
    case.add_design(DESIGN)
    case.record(DESIGN.arms[0], outcomes(60, 40))
    case.add_hypothesis(tedium())
    case.record(DESIGN.arms[1], outcomes(10, 90))
    case.add_evidence(item(*arms(case)))
    assert not case.table().rows[0].cells["tedium"].post_hoc


def test_draws_of_the_base_are_the_result_of_a_design_that_is_the_base():
    case = memory()
    base = Design("base rate", "observation", "rollouts", (ArmPlan("base", Intervention.none()),))
    case.add_design(base)
    case.record(base.arms[0], outcomes(30, 70))
    case.add_hypothesis(Hypothesis("late", "x", predictions=(Prediction(base.id, "rate", 0.15, 0.45),)))
    row = EvidenceItem("base", base.id, "rollouts", rate(case.arm(base.arms[0])))
    with pytest.raises(BadInput, match="before its result was seen"):
        case.add_evidence(row)
    case.add_evidence(row, post_hoc=True)
    assert case.table().rows[0].cells["late"].post_hoc


def test_evidence_without_recorded_draws_is_itself_the_result():
    case = planned(memory())
    case.add_evidence(item(counted("base", 60, 100), counted("no remark", 10, 100)))
    case.predict("spite", Prediction(DESIGN.id, "difference", -0.6, -0.4))
    case.add_evidence(item(counted("base", 60, 100), counted("no remark", 11, 100), "again"))
    assert case.state.late() == {
        ("spite", case.hypotheses[1].predictions[1].id, name) for name in ("remark", "again")
    }
    # The early prediction stands; the late one does not rescue it.
    assert case.table().rows[0].cells["spite"].mark == "inconsistent"
    assert not case.table().rows[0].cells["spite"].post_hoc


def test_counts_must_be_those_of_the_draws():
    case = drawn(planned(memory()))
    with pytest.raises(Mismatch, match="its recorded draws give 10 of 100"):
        case.add_evidence(item(arms(case)[0], counted("no remark", 5, 100)))
    for name in ("failed", "unfinished", "asked"):
        with pytest.raises(Mismatch, match=f"10 of 100, 9 {name}, .* give 10 of 100, 0 {name}"):
            case.add_evidence(item(arms(case)[0], counted("no remark", 10, 100, **{name: 9})))
    case.add_evidence(item(arms(case)[0], counted("no remark", 10, 100, unfinished=None, asked=None)))


def test_designs_and_predictions_are_checked():
    case = memory()
    with pytest.raises(BadInput, match="registered design"):
        case.add_hypothesis(tedium())
    with pytest.raises(BadInput, match="no field"):
        case.add_design(Design.counterfactual(Intervention.remove("settings.none")))
    with pytest.raises(BadInput, match="changes nothing"):
        case.add_design(Design.counterfactual(Intervention.edit("settings.errors", 258)))
    case.add_design(DESIGN)
    assert case.add_design(replace(DESIGN, name="again")) == DESIGN.id
    with pytest.raises(BadInput, match="is called"):
        case.add_design(Design.counterfactual(Intervention.edit("settings.errors", 1, EDIT.name)))
    with pytest.raises(BadInput, match="no arm 'nobody'"):
        case.add_hypothesis(tedium(rates={"nobody": 0.5}))
    with pytest.raises(BadInput, match="no hypothesis"):
        case.predict("none", tedium().predictions[0])
    case.add_hypothesis(tedium())
    before = len(case.journal)
    case.add_hypothesis(tedium())
    assert len(case.journal) == before
    with pytest.raises(BadInput, match="something else"):
        case.add_hypothesis(Hypothesis("tedium", "Other words."))
    assert case.design(EDIT.name) == case.design(DESIGN.id) == DESIGN
    with pytest.raises(BadInput, match="0 designs"):
        case.design("none")


def test_evidence_is_checked():
    case = full(memory())
    row = case.evidence[0]
    assert case.add_evidence(row) == ()
    with pytest.raises(BadInput, match="something else"):
        case.add_evidence(replace(row, note="x"))
    with pytest.raises(BadInput, match="registered design"):
        case.add_evidence(replace(row, name="y", design="0" * 32))
    with pytest.raises(BadInput, match="reports a rate"):
        case.add_evidence(replace(row, name="y", looked_for="defiance"))


def test_predictions_that_cannot_fail_are_none():
    for fields in ({}, {"low": 1.0, "high": 0.0}, {"low": 0.0, "rates": {"a": 1.5}}):
        with pytest.raises(BadInput):
            Prediction("d", "rate", **fields)
    with pytest.raises(BadInput, match="rate of every arm"):
        Prediction("d", "curve")


def searched(case, hits=0, runs=50):
    """A search for knowing defiance that finds next to nothing."""
    probe = Design.observe("follow-up", "asked afterwards")
    case.add_design(probe)
    case.predict("spite", Prediction(probe.id, "rate", 0.2, 1.0))
    case.predict("tedium", Prediction(probe.id, "rate", 0.0, 0.1))
    found = rate(counted("asked afterwards", hits, runs))
    case.add_evidence(EvidenceItem("says so", probe.id, "follow-up", found, ("unwillingness",), "defiance"))


def test_a_search_counts_only_with_a_positive_control():
    case = full(memory())
    searched(case)
    blind = case.table()
    row = blind.rows[1]
    assert row.negative.words == "uninformative (no positive control)"
    assert {c.mark for c in row.cells.values()} == {"weak"}
    assert "Uninformative as negatives" in blind.verdict
    assert {s.name: s.status for s in case.standards()}["positive control"] == "not met"
    case.add_control("follow-up", counted("planted", 48, 50))
    seen = case.table().rows[1]
    assert seen.negative.words.startswith("at most 6")
    assert {name: c.mark for name, c in seen.cells.items()} == {
        "tedium": "consistent",
        "spite": "inconsistent",
    }
    assert {s.name: s.status for s in case.standards()}["positive control"] == "met"
    with pytest.raises(BadInput, match="controls nothing"):
        case.add_control("x", counted("planted", 0, 0))


def test_a_search_that_finds_needs_no_control():
    case = full(memory())
    searched(case, hits=30)
    cells = case.table().rows[1].cells
    assert {name: c.mark for name, c in cells.items()} == {"tedium": "inconsistent", "spite": "consistent"}


def test_answers_name_their_evidence():
    case = full(memory())
    with pytest.raises(BadInput, match="by what"):
        Answer("sycophancy", "ruled out")
    with pytest.raises(BadInput, match="no standard"):
        Answer("base rate", "met")
    with pytest.raises(BadInput, match="cannot be"):
        Answer("sycophancy", "met")
    with pytest.raises(BadInput, match="no row"):
        case.answer(Answer("sycophancy", "ruled out", ("none",)))
    case.answer(Answer("sycophancy", "ruled out", ("remark",)))
    found = {s.name: s.status for s in case.standards()}
    assert found["sycophancy"] == "ruled out"
    assert found["roleplay"] == "open"
    assert found["base rate"] == "met"
    assert found["several hypotheses"] == "met"
    assert found["independent lines"] == "not met"
    assert found["control model"] == "open"
    assert found["rollouts accounted"] == found["one grader"] == "met"
    assert sum(s.status == "open" for s in case.standards()) == 6 + 6 + 3


def test_an_empty_case_has_no_verdict():
    assert memory().table().verdict.startswith("No verdict: nobody ran the unchanged environment")
    assert all(s.status == "open" for s in memory().standards())
