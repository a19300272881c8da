from __future__ import annotations

import json

import pytest

from gate.gate_problems import HARD_AND_EASY
from refork.errors import BadInput
from refork.plain import to_json
from refork_methods.gate.commands import app
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, read_policy
from refork_methods.gate.planted import planted_records
from refork_methods.gate.records import read_jsonl, write_jsonl
from support.command import runner

TRUE = CriticModel(0.6, (Critic("test", 0.9, 0.45, 2), Critic("review", 0.8, 0.35, 5)), Kernel(0.25, 0.1))


gate = runner(app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("gate")
    write_jsonl(place / "all.jsonl", planted_records(TRUE, 120, seed=1, prices=Prices(100, 60, 5)))
    told = json.loads(
        gate(
            "fit", place / "all.jsonl", "--reward", 100, "--share", 0.5, "--test", place / "test.jsonl",
            "--out", place / "policy.json", "--json",
        )
    )  # fmt: skip
    (place / "fit.json").write_text(json.dumps(told))
    return place


def test_fit(folder):
    told = json.loads((folder / "fit.json").read_text())
    assert told["instances"] == 60
    assert told["prices"] == to_json(Prices(100, 60, 5))
    assert told["independence"]["df"] == 2
    assert told["prior"]["wilson"]["low"] < told["prior"]["mean"] < told["prior"]["wilson"]["high"]
    model, prices = read_policy(folder / "policy.json")
    assert (model.names, prices) == (("test", "review"), Prices(100, 60, 5))
    assert len({r.instance for r in read_jsonl(folder / "test.jsonl")}) == 60
    said = gate("fit", folder / "all.jsonl", "--critics", "test")
    assert "P(pass | right)" in said
    assert "refining: P(fix)" in said


def test_replay(folder):
    said = gate("replay", folder / "policy.json", folder / "test.jsonl", "--verify", "retry")
    assert "minus the best simple rule" in said
    assert "dp minus always_verify" in said
    told = json.loads(
        gate(
            "replay", folder / "policy.json", folder / "test.jsonl", "--verify", "retry", "--json",
            "--svg", folder / "r.svg", "--price", "verify=1",
        )
    )  # fmt: skip
    assert told["instances"] == 60
    assert set(told["comparisons"]) == {"dp", "greedy"}
    assert (folder / "r.svg").read_text().startswith("<svg")
    cheap = {row["policy"]: row for row in told["policies"]}
    assert cheap["always_verify"]["utility"]["estimate"] > 60


def test_replay_refuses_what_it_was_fitted_on_but_for_folds(folder):
    with pytest.raises(BadInput, match="fitted on 60 instances"):
        gate("replay", folder / "policy.json", folder / "all.jsonl")
    told = json.loads(gate("replay", folder / "policy.json", folder / "all.jsonl", "--folds", 3, "--json"))
    assert told["instances"] == 120


def test_score(folder):
    assert "PRR" in gate("score", folder / "policy.json", folder / "test.jsonl")
    told = json.loads(gate("score", folder / "policy.json", folder / "test.jsonl", "--json"))
    assert told["scores"][0]["prr"] > 0.3
    assert len(told["beliefs"]) == 180
    gate("score", folder / "policy.json", folder / "all.jsonl", "--leave-one-out")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--price", "test"], "no price"),
        (["--price", "test=1", "--price", "test=2"], "given twice"),
        (["--price", "lint=1"], "no 'lint' to price"),
        (["--share", "0.5"], "both a share"),
        (["--rate", "hours=1"], "no rate of 'hours'"),
        (["--outcomes", "0=/nowhere.json"], "no such file"),
        (["--threshold", "lint=1"], "no critic 'lint'"),
        (["--price", "test=-1"], "price of critic 'test'"),
    ],
)
def test_what_is_refused(folder, arguments, says):
    with pytest.raises(BadInput, match=says):
        gate("fit", folder / "all.jsonl", *arguments)


def test_costs_in_seconds_need_a_rate(folder, tmp_path):
    rows = [
        {
            "instance": f"i{n}",
            "right": n % 2 == 0,
            "verdicts": {"test": n % 3 == 0},
            "costs": {"test": {"seconds": 4}},
        }
        for n in range(20)
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match="--rate seconds="):
        gate("fit", tmp_path / "r.jsonl")
    with pytest.raises(BadInput, match="no rate from seconds to utility"):
        gate("fit", tmp_path / "r.jsonl", "--rate", "money=2")
    told = json.loads(gate("fit", tmp_path / "r.jsonl", "--price", "test=3", "--json"))
    assert told["critics"][0]["price"] == 3  # where every price is given, amounts need no rate
    told = json.loads(gate("fit", tmp_path / "r.jsonl", "--rate", "seconds=0.5", "--json"))
    assert told["critics"][0]["price"] == 2
    assert told["prices"] is None
    assert told["kernel"]["from"] == "resample"


def test_a_policy_keeps_its_unit(folder, tmp_path):
    rows = [
        {
            "instance": f"i{n}",
            "candidate": str(k),
            "right": (n + k) % 2 == 0,
            "verdicts": {"test": (n + k) % 3 == 0},
            "costs": {"test": {"seconds": 4}, "verify": {"seconds": 600}, "generate": {"seconds": 30}},
        }
        for n in range(20)
        for k in range(3)
    ]
    for name, part in (("fit", rows[:30]), ("held", rows[30:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    unit = ["--unit", "money", "--rate", "seconds=0.01"]
    gate("fit", tmp_path / "fit.jsonl", *unit, "--reward", 20, "--out", tmp_path / "p.json")
    assert read_policy(tmp_path / "p.json")[1] == Prices(20, 6, 0.3, unit="money")
    held = [tmp_path / "p.json", tmp_path / "held.jsonl"]
    with pytest.raises(BadInput, match="prices are in money, not seconds"):
        gate("replay", *held, "--unit", "seconds")
    with pytest.raises(BadInput, match="no rate from seconds to money"):
        gate("replay", *held, "--recorded")
    told = json.loads(gate("replay", *held, "--recorded", "--rate", "seconds=0.01", "--json"))
    always = next(row for row in told["policies"] if row["policy"] == "always_verify")
    assert always["spent"] == pytest.approx(6)
    gate("score", *held)  # costs do not matter to a score


def _with_seconds(number, candidate, **more):
    costs = {"test": {"seconds": 4, "tokens": 10}, "verify": {"seconds": 600}, "generate": {"seconds": 30}}
    return {
        "instance": f"i{number}", "candidate": str(candidate), "right": (number + candidate) % 2 == 0,
        "verdicts": {"test": (number + candidate) % 3 == 0}, "costs": costs | more,
    }  # fmt: skip


@pytest.mark.parametrize("rates", [[], ["--rate", "seconds=0.01", "--rate", "tokens=0.001"]])
def test_the_instances_held_out_keep_their_amounts(tmp_path, rates):
    rows = [_with_seconds(n, k) for n in range(20) for k in range(3)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prices = ["--price", "test=1", "--price", "verify=6", "--price", "generate=1", "--reward", 20]
    held = tmp_path / "held.jsonl"
    gate(
        "fit", tmp_path / "r.jsonl", "--share", 0.5, "--test", held, "--out", tmp_path / "p.json",
        *prices, *rates,
    )  # fmt: skip
    assert json.loads(held.read_text().splitlines()[0])["costs"] == rows[0]["costs"]
    replayed = ["replay", tmp_path / "p.json", held, "--recorded"]
    with pytest.raises(BadInput, match="recorded in seconds"):
        gate(*replayed)
    asked = [*replayed, "--rate", "seconds=0.01", "--rate", "tokens=0.001", "--json"]
    always = next(r for r in json.loads(gate(*asked))["policies"] if r["policy"] == "always_verify")
    assert always["spent"] == pytest.approx(6)


def test_a_price_is_not_the_mean_of_the_calls_that_happen_to_be_in_its_unit(tmp_path):
    rows = [_with_seconds(n, 0, **({"test": 2} if n < 3 else {})) for n in range(20)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match="price of 'test' is unknown"):
        gate("fit", tmp_path / "r.jsonl")


@pytest.mark.parametrize("cost", [{"hours": 2}, {"seconds": -1}, {"seconds": True}, {"seconds": "4"}, {}])
def test_amounts_are_checked_with_and_without_rates(tmp_path, cost):
    (tmp_path / "r.jsonl").write_text(json.dumps(_with_seconds(0, 0, test=cost)) + "\n")
    for rates in ([], ["--rate", "seconds=1", "--rate", "tokens=1"]):
        with pytest.raises(BadInput):
            gate("fit", tmp_path / "r.jsonl", "--price", "test=1", *rates)


def test_the_seconds_of_test_reports_are_kept(tmp_path):
    for n in range(8):
        for check, ok in (("public", n % 3 > 0), ("verify", n % 2 > 0)):
            path = tmp_path / "reports" / f"t{n}" / "0" / f"{check}.xml"
            path.parent.mkdir(parents=True, exist_ok=True)
            failure = "" if ok else "<failure/>"
            path.write_text(
                f'<testsuite name="s"><testcase name="{check}" time="2.5">{failure}</testcase></testsuite>'
            )
    gate(
        "fit", tmp_path / "reports", "--price", "public=1", "--share", 0.5, "--test", tmp_path / "h.jsonl",
        "--seed", 1,
    )  # fmt: skip
    kept = [json.loads(line)["costs"] for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert kept == [{"public": {"seconds": 2.5}, "verify": {"seconds": 2.5}}] * 4


def test_fit_warns_of_hard_and_easy_instances_and_classes_hold_them(tmp_path):
    for name, seed in (("fit", 1), ("held", 2)):
        write_jsonl(
            tmp_path / f"{name}.jsonl",
            planted_records(HARD_AND_EASY, 100, draws=3, steps=1, seed=seed, prefix=name),
        )
    asked = ["fit", tmp_path / "fit.jsonl", "--reward", 100]
    for price in ("test=2", "review=5", "verify=45", "generate=5"):
        asked += ["--price", price]
    assert "warning: rounds of one instance depend on each other" in gate(*asked)
    said = gate(*asked, "--classes", "auto", "--out", tmp_path / "two.json")
    assert "rounds of one instance" not in said
    assert "class 2:" in said
    assert "class 3:" not in said
    told = json.loads(
        gate("replay", tmp_path / "two.json", tmp_path / "held.jsonl", "--verify", "retry", "--json")
    )
    plan = next(row for row in told["policies"] if row["policy"] == "dp")
    assert abs(plan["z"]) < 3
    acted = json.loads(gate("act", tmp_path / "two.json", "--verdict", "test=fail", "--json"))
    assert sum(acted["state"]["classes"]) == pytest.approx(1)
    for wrong in ("0", "two"):
        with pytest.raises(BadInput, match="classes of difficulty"):
            gate(*asked, "--classes", wrong)


def test_no_prices_no_replay(folder, tmp_path):
    gate("fit", folder / "all.jsonl", "--out", tmp_path / "p.json")
    held = planted_records(TRUE, 10, prefix="held", seed=9)
    write_jsonl(tmp_path / "held.jsonl", held)
    with pytest.raises(BadInput, match="policy file has no prices"):
        gate("replay", tmp_path / "p.json", tmp_path / "held.jsonl")
    with pytest.raises(BadInput, match="price of 'verify' is unknown"):
        gate("replay", tmp_path / "p.json", tmp_path / "held.jsonl", "--reward", 100)
    prices = ["--reward", 100, "--price", "verify=30", "--price", "generate=5"]
    assert "dp" in gate("replay", tmp_path / "p.json", tmp_path / "held.jsonl", *prices)
