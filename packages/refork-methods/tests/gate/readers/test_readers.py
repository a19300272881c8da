"""JSON lines, JUnit XML, pytest-json-report and SWE-bench reports, and everything that they must refuse."""

import hashlib
import json

import pytest

from refork.errors import BadInput
from refork_methods.gate.readers import (
    parametrised,
    read_junit,
    read_pytest_json,
    read_reports,
    read_swebench,
)
from refork_methods.gate.records import Rates, joined, labelled, read_jsonl, write_jsonl


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(**more):
    return {"instance": "a", "candidate": "0", "right": True, "verdicts": {"test": True}} | more


class TestJsonl:
    def test_round_trip(self, tmp_path):
        file = lines(
            tmp_path / "r.jsonl",
            row(
                costs={"test": 2, "verify": 30.5},
                step=0,
                patch="x = 1",
                tests={"test": ["t1"], "verify": ["t2"]},
            ),
            row(step=1, right=None, oracle_error="container died", verdicts={"test": {"error": "429"}}),
            row(instance="b", patch="  \n", right=None),
        )  # fmt: skip
        records = read_jsonl(file)
        assert records[0].artifact == hashlib.sha256(b"x = 1").hexdigest()
        assert records[0].costs == {"test": 2.0, "verify": 30.5}
        write_jsonl(tmp_path / "again.jsonl", records)
        assert read_jsonl(tmp_path / "again.jsonl") == records
        assert not list(tmp_path.glob("*.part"))

    def test_the_rows_of_the_release(self, tmp_path):
        old = {
            "instance_id": "lcb-1", "patch_id": 2, "Y": 1, "L0_syntax": 1, "L2_public_tests": True,
            "L3_llm_review": False, "cost_usd": 0.02,
        }  # fmt: skip
        (got,) = read_jsonl(lines(tmp_path / "r.jsonl", old), rates=Rates(money=100))
        assert (got.instance, got.candidate, got.right) == ("lcb-1", "2", True)
        assert got.verdicts == {"L0_syntax": True, "L2_public_tests": True, "L3_llm_review": False}
        assert got.costs == {"generate": 2.0}
        assert read_jsonl(tmp_path / "r.jsonl")[0].costs == {}  # no rate: unknown, not 0

    def test_an_oracle_error_is_dropped_and_counted_never_wrong(self, tmp_path):
        file = lines(
            tmp_path / "r.jsonl",
            row(),
            row(candidate="1", right=False, oracle_error="timeout"),
            row(candidate="2", right=None),
            row(candidate="3", right=False),
        )
        kept = labelled(read_jsonl(file))
        assert [r.right for r in kept.records] == [True, False]
        assert kept.dropped == {"no outcome": 1, "oracle error": 1}

    def test_an_empty_patch_is_wrong_and_fails_every_critic(self, tmp_path):
        file = lines(
            tmp_path / "r.jsonl",
            row(patch="", right=True, verdicts={"test": True}),
            row(candidate="1", verdicts={"test": True, "review": True}),
        )
        empty = read_jsonl(file)[0]
        assert empty.right is False
        assert empty.verdicts == {"test": False, "review": False}

    @pytest.mark.parametrize("value", [None, {"error": "429"}, {"passed": None}])
    def test_a_failed_call_is_unknown_never_a_fail(self, tmp_path, value):
        (got,) = read_jsonl(lines(tmp_path / "r.jsonl", row(verdicts={"review": value})))
        assert got.verdicts == {"review": None}

    def test_a_score_needs_a_threshold(self, tmp_path):
        file = lines(
            tmp_path / "r.jsonl", row(verdicts={"review": 0.8}), row(instance="b", verdicts={"review": 0})
        )
        with pytest.raises(BadInput, match="neither pass nor fail") as caught:
            read_jsonl(file)
        assert "r.jsonl:1" in str(caught.value)
        assert "--threshold review=0.5" in str(caught.value)
        assert [r.verdicts["review"] for r in read_jsonl(file, {"review": 0.8})] == [True, False]
        assert [r.verdicts["review"] for r in read_jsonl(file, {"review": 0.81})] == [False, False]
        with pytest.raises(BadInput, match="no critic 'lint'"):
            read_jsonl(file, {"review": 0.5, "lint": 0.5})

    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            ({"right": 0.5}, "outcome is 0.5"),
            ({"verdicts": {"test": "maybe"}}, "neither pass nor fail"),
            ({"costs": {"verify": -1}}, "cost of 'verify'"),
            ({"costs": {"verify": {"seconds": 3}}}, "no rate from seconds"),
            ({"costs": {"verify": "3"}}, "must be a number"),
            ({"step": -1}, "counted from 0"),
            ({"step": "one"}, "whole number"),
            ({"tests": {"test": ["t1", "t2"], "verify": ["t2"]}}, "also in the oracle's suite: t2"),
            ({"verdicts": [1]}, "no record"),
        ],
    )
    def test_what_is_no_record_is_refused_with_its_line(self, tmp_path, bad, says):
        with pytest.raises(BadInput, match=says) as caught:
            read_jsonl(lines(tmp_path / "r.jsonl", row(instance="first"), row(**bad)), rates=Rates())
        assert "r.jsonl:2" in str(caught.value) or "a/0" in str(caught.value)

    def test_without_rates_amounts_are_unknown_not_0(self, tmp_path):
        file = lines(tmp_path / "r.jsonl", row(costs={"verify": {"seconds": 3}, "test": 2, "review": None}))
        assert read_jsonl(file)[0].costs == {"test": 2.0}
        both = {"verify": {"seconds": 3, "tokens": 100}}
        file = lines(tmp_path / "r.jsonl", row(costs=both))
        assert read_jsonl(file, rates=Rates(seconds=2, tokens=0.01))[0].costs == {"verify": 7.0}

    def test_what_is_no_text(self, tmp_path):
        (tmp_path / "r.jsonl").write_bytes(b"\xff\xfe")
        with pytest.raises(BadInput, match="no text in UTF-8"):
            read_jsonl(tmp_path / "r.jsonl")

    def test_no_instance_no_records_and_a_candidate_twice(self, tmp_path):
        with pytest.raises(BadInput, match="names no instance"):
            read_jsonl(lines(tmp_path / "r.jsonl", {"right": True, "verdicts": {}}))
        with pytest.raises(BadInput, match="no records"):
            read_jsonl(lines(tmp_path / "r.jsonl"))
        with pytest.raises(BadInput, match="recorded twice"):
            read_jsonl(lines(tmp_path / "r.jsonl", row(), row()))


SUITE = '<testsuites><testsuite name="s" tests="{n}" errors="0" failures="0">{cases}</testsuite></testsuites>'


def junit(path, *cases, n=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(
        f'<testcase classname="m" name="{name}" time="0.5">{f"<{end}/>" if end else ""}</testcase>'
        for name, end in cases
    )
    path.write_text(SUITE.format(n=len(cases) if n is None else n, cases=body))
    return path


class TestSuites:
    def test_junit(self, tmp_path):
        run = read_junit(
            junit(
                tmp_path / "a.xml",
                ("a", ""),
                ("b", "failure"),
                ("c", "skipped"),
                ("d", "error"),
                ("a", "error"),
            )
        )
        assert (run.passed, run.failed, run.skipped) == (frozenset(), {"m::b"}, {"m::c"})
        assert run.errors == {"m::a", "m::d"}  # a teardown error is worse than the pass
        assert run.seconds == 2.5
        assert run.verdict() is False

    def test_suites_within_suites_and_a_bare_suite(self, tmp_path):
        inner = '<testsuite name="in"><testcase name="x"/></testsuite>'
        (tmp_path / "a.xml").write_text(f'<testsuite name="out">{inner}<testcase name="y"/></testsuite>')
        run = read_junit(tmp_path / "a.xml")
        assert run.passed == {"x", "y"}
        assert run.seconds is None

    @pytest.mark.parametrize(
        ("cases", "unknown", "fail"),
        [
            ([("a", "")], True, True),
            ([("a", ""), ("b", "skipped")], True, True),
            ([("a", "skipped")], None, None),
            ([], None, None),
            ([("a", ""), ("b", "error")], None, False),
            ([("a", "failure"), ("b", "error")], False, False),
        ],
    )
    def test_verdicts(self, tmp_path, cases, unknown, fail):
        run = read_junit(junit(tmp_path / "a.xml", *cases))
        assert run.verdict() is unknown
        assert run.verdict("fail") is fail

    @pytest.mark.parametrize("text", ["", "<testsuites><testsuite>", "<html/>"])
    def test_what_is_no_junit_tells_nothing(self, tmp_path, text):
        (tmp_path / "a.xml").write_text(text)
        run = read_junit(tmp_path / "a.xml")
        assert run.verdict() is None
        assert "JUnit" in run.broken

    def test_a_report_that_was_cut_short(self, tmp_path):
        run = read_junit(junit(tmp_path / "a.xml", ("a", ""), n=7))
        assert run.verdict() is None
        assert run.broken == "it declares 7 tests and holds 1"

    def test_pytest_json(self, tmp_path):
        tests = [
            {"nodeid": "t.py::a", "outcome": "passed", "call": {"duration": 1.0}, "setup": {"duration": 0.5}},
            {"nodeid": "t.py::b", "outcome": "xfailed"},
            {"nodeid": "t.py::c", "outcome": "xpassed"},
        ]
        file = tmp_path / "a.json"
        file.write_text(json.dumps({"exitcode": 0, "tests": tests, "collectors": []}))
        run = read_pytest_json(file)
        assert (run.passed, run.skipped, run.seconds) == ({"t.py::a", "t.py::c"}, {"t.py::b"}, 1.5)
        assert run.verdict() is True
        tests[0]["outcome"] = "failed"
        file.write_text(json.dumps({"exitcode": 1, "tests": tests}))
        assert read_pytest_json(file).verdict() is False
        file.write_text(json.dumps({"exitcode": 3, "tests": [tests[2]]}))
        assert read_pytest_json(file).verdict() is None
        broken = [{"nodeid": "t.py", "outcome": "failed", "longrepr": "SyntaxError"}]
        file.write_text(json.dumps({"exitcode": 2, "tests": [], "collectors": broken}))
        assert read_pytest_json(file).verdict() is None
        assert read_pytest_json(file).verdict("fail") is False
        file.write_text(json.dumps({"exitcode": 0, "summary": {"passed": 3}}))
        assert read_pytest_json(file).verdict() is None

    @pytest.mark.parametrize(
        "body", ["[]", "{", '{"tests": [{"nodeid": "a", "outcome": "odd"}]}', '{"tests": 3}']
    )
    def test_what_is_no_pytest_report_tells_nothing(self, tmp_path, body):
        (tmp_path / "a.json").write_text(body)
        assert read_pytest_json(tmp_path / "a.json").broken is not None


class TestReports:
    def test_a_folder(self, tmp_path):
        junit(tmp_path / "i1/0/public.xml", ("p", ""))
        junit(tmp_path / "i1/0/hidden.xml", ("h", "failure"))
        junit(tmp_path / "i1/1/public.xml", ("p", "error"))
        junit(tmp_path / "i1/1/hidden.xml", ("h", "error"))
        junit(tmp_path / "i2/0/hidden.xml", ("h", ""))
        (tmp_path / "notes.txt").write_text("not a report")
        found = read_reports(tmp_path, oracle="hidden", rates=Rates(unit="seconds"))
        assert [(r.instance, r.candidate, r.right, dict(r.verdicts)) for r in found] == [
            ("i1", "0", False, {"public": True}),
            ("i1", "1", None, {"public": None}),
            ("i2", "0", True, {"public": None}),
        ]
        assert found[0].costs == {"public": 0.5, "verify": 0.5}
        assert labelled(found).dropped == {"oracle error": 1}
        assert read_reports(tmp_path, oracle="hidden", on_error="fail")[1].right is False

    def test_a_public_test_in_the_oracles_suite_is_refused(self, tmp_path):
        junit(tmp_path / "i1/0/public.xml", ("p", ""))
        junit(tmp_path / "i1/0/hidden.xml", ("p", ""), ("h", ""))
        with pytest.raises(BadInput, match="1 tests of critic 'public' are also in the oracle's suite: m::p"):
            read_reports(tmp_path, oracle="hidden")

    def test_patterns(self, tmp_path):
        junit(tmp_path / "run/i1-2-test.xml", ("p", ""))
        junit(tmp_path / "run/i1-2-verify.xml", ("h", ""))
        (got,) = read_reports(tmp_path, "*/{instance}-{step}-{check}.xml")
        assert (got.instance, got.candidate, got.step, got.right) == ("i1", "0", 2, True)
        with pytest.raises(BadInput, match="no file fits"):
            read_reports(tmp_path, "{instance}/{check}.json")
        with pytest.raises(BadInput, match="no report is called 'hidden'"):
            read_reports(tmp_path, "*/{instance}-{step}-{check}.xml", oracle="hidden")
        with pytest.raises(BadInput, match=r"lacks \{check\}"):
            parametrised("{instance}.xml")
        with pytest.raises(BadInput, match=r"the pattern has \{task\}"):
            parametrised("{task}/{check}.xml")
        junit(tmp_path / "x/i.md", ("p", ""))
        with pytest.raises(BadInput, match="no report's ending"):
            read_reports(tmp_path, "{instance}/{check}.md")


SUMMARY = {
    "total_instances": 5,
    "schema_version": 2,
    "submitted_ids": ["a", "b", "c", "d"],
    "completed_ids": ["a", "b"],
    "incomplete_ids": ["e"],
    "resolved_ids": ["a"],
    "unresolved_ids": ["b"],
    "error_ids": ["c"],
    "empty_patch_ids": ["d"],
}


class TestSweBench:
    def test_a_runs_summary(self, tmp_path):
        file = tmp_path / "m.run.json"
        file.write_text(json.dumps(SUMMARY))
        found = {r.instance: r for r in read_swebench([("0", file)])}
        assert {name: r.right for name, r in found.items()} == {"a": True, "b": False, "c": None, "d": False}
        assert found["c"].missing == "oracle error"
        assert found["d"].empty

    def test_reports_of_instances(self, tmp_path):
        status = {
            "FAIL_TO_PASS": {"success": ["t1"], "failure": []},
            "PASS_TO_PASS": {"success": [], "failure": ["t2"]},
        }
        whole = {
            "patch_is_None": False,
            "patch_exists": True,
            "patch_successfully_applied": True,
            "resolved": True,
        }
        cases = {
            "a": whole | {"tests_status": status},
            "b": whole | {"resolved": False},
            "c": whole | {"patch_successfully_applied": False, "resolved": False},
            "d": {"patch_is_None": True, "patch_exists": False, "resolved": False},
        }  # fmt: skip
        for name, body in cases.items():
            (tmp_path / "logs" / name).mkdir(parents=True)
            (tmp_path / "logs" / name / "report.json").write_text(json.dumps({name: body}))
        found = {r.instance: r for r in read_swebench([("1", tmp_path / "logs")])}
        assert {name: r.right for name, r in found.items()} == {"a": True, "b": False, "c": None, "d": False}
        assert found["a"].tests == {"verify": {"t1", "t2"}}
        assert found["d"].empty
        assert found["a"].candidate == "1"

    def test_outcomes_join_the_critics_verdicts(self, tmp_path):
        (tmp_path / "m.json").write_text(json.dumps(SUMMARY))
        rows = [{"instance": n, "verdicts": {"test": True}} for n in ("a", "b", "c", "d", "x")]
        made = joined(
            read_jsonl(lines(tmp_path / "c.jsonl", *rows)), read_swebench([("0", tmp_path / "m.json")])
        )
        kept = labelled(made)
        assert [(r.instance, r.right, r.verdicts["test"]) for r in kept.records] == [
            ("a", True, True), ("b", False, True), ("d", False, False),
        ]  # fmt: skip
        assert kept.dropped == {"no outcome": 1, "oracle error": 1}

    def test_a_join_refuses_strangers_contradictions_and_leaks(self, tmp_path):
        (tmp_path / "m.json").write_text(json.dumps(SUMMARY))
        outcomes = read_swebench([("0", tmp_path / "m.json")])
        with pytest.raises(BadInput, match="no candidate of the records"):
            joined(read_jsonl(lines(tmp_path / "c.jsonl", row(instance="z"))), outcomes)
        with pytest.raises(BadInput, match="contradict"):
            joined(read_jsonl(lines(tmp_path / "c.jsonl", row(right=False))), outcomes)
        report = {"a": {"resolved": True, "tests_status": {"FAIL_TO_PASS": {"success": ["t1"]}}}}
        (tmp_path / "report.json").write_text(json.dumps(report))
        leaky = read_jsonl(lines(tmp_path / "c.jsonl", row(tests={"test": ["t1"]})))
        with pytest.raises(BadInput, match="also in the oracle's suite"):
            joined(leaky, read_swebench([("0", tmp_path / "report.json")]))

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ("{", "cannot be read"),
            ("[]", "no report"),
            ('{"a": {"passed": true}}', "no report"),
            ('{"resolved_ids": []}', "does not list unresolved_ids"),
            (
                '{"resolved_ids": ["a"], "unresolved_ids": ["a"]}',
                "a is in resolved_ids and in unresolved_ids",
            ),
        ],
    )
    def test_what_is_no_report_is_refused(self, tmp_path, body, says):
        (tmp_path / "m.json").write_text(body)
        with pytest.raises(BadInput, match=says):
            read_swebench([("0", tmp_path / "m.json")])
        (tmp_path / "none").mkdir()
        with pytest.raises(BadInput, match=r"no report\.json"):
            read_swebench([("0", tmp_path / "none")])
