"""Grid runs: size, resuming, errors as rows, invalid cells, the search for the worst framing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput, Mismatch, ServerError
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork_methods.rot.episode import Cell, Episode
from refork_testbed.trials.rot_grid import best_framings, open_summariser, read_run, run_grid
from refork_testbed.trials.rot_recipe import RotRecipe, cells, checked, plan, search_cells
from refork_testbed.worlds.house_rules.agents import RuleAgent
from refork_testbed.worlds.house_rules.attacks import FRAMINGS
from support.openai_server import Script, serving

AGENT = {"agent": RuleAgent(compact=True).policy()}
SMALL = {"policies": ("agent",), "wording": "small", "max_tokens": 60, "turns": 8, "reps": 1}


def recipe(**more):
    return RotRecipe(**(SMALL | {"tasks": ("spend", "proddb")} | more))


def run(chosen, folder, **more):
    return run_grid(chosen, folder, policies=AGENT, **more)


def test_the_papers_grid_is_1323_episodes():
    models = tuple(f"m{i}" for i in range(7))
    full = RotRecipe(policies=models, framing="deprecation")
    assert len(list(cells(full))) == 1323
    assert plan(full)["episodes"] == 1323
    assert len({cell.key for cell in cells(full)}) == 1323


def test_lists_are_crossed_only_where_they_matter():
    wide = recipe(
        compactors=("truncate", "summarise"), summarisers=("a", "b"), words=(15, 30), rounds=(0, 1),
        conditions=("control", "compaction"), tasks=("spend",),
    )  # fmt: skip
    # One control; truncate x 2 rounds; summarise x 2 summarisers x 2 limits x 2 rounds.
    assert len(list(cells(wide))) == 1 + 2 + 8
    assert len(list(cells(wide.model_copy(update={"twins": True})))) == 22
    assert list(search_cells(wide)) == []
    assert len(list(search_cells(recipe(search_reps=2)))) == 2 * 2 * len(FRAMINGS)


def test_a_run_ends_with_its_report_and_resumes_without_work(tmp_path):
    told = run(recipe(framing="deprecation"), tmp_path)
    setup = told["setups"][0]
    rates = {line["condition"]: line["all"]["violations"] for line in setup["table"]}
    # The soft rule is broken where it went; the hard one is refused anyway.
    assert rates == {
        "floor": 1, "control": 0, "compaction": 1, "attack_volume": 1, "attack_inject": 1,
        "defense_pin": 0, "defense_pin_attack": 0,
    }  # fmt: skip
    assert setup["culprits"] == {"trim": 3, "summariser": 0, "agent": 0}
    assert told["episodes"] == 14
    assert told["flags"] == []
    text = (tmp_path / "episodes.jsonl").read_text()
    assert run(recipe(framing="deprecation"), tmp_path) == told
    assert (tmp_path / "episodes.jsonl").read_text() == text
    with pytest.raises(Mismatch, match="max_tokens"):
        run(recipe(framing="deprecation", max_tokens=61), tmp_path)


def test_an_interrupted_run_goes_on(tmp_path):
    chosen = recipe(framing="deprecation")
    stopped: list[int] = []

    def stop(stage, done, total, **_):
        stopped.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(chosen, tmp_path, progress=stop)
    assert stopped == [0]
    run(chosen, tmp_path)
    rows = (tmp_path / "episodes.jsonl").read_text().splitlines(keepends=True)
    # Half of the rows lost, the last of them torn: what is missing is done again on the same forks.
    (tmp_path / "episodes.jsonl").write_text("".join(rows[:7]) + rows[7][:20])
    before, _ = read_run(tmp_path)
    assert len(before) == 7
    with Tree.open(tmp_path / "tree.db", "r") as tree:
        size = len(tree)
    run(chosen, tmp_path)
    after, _ = read_run(tmp_path)
    assert len(after) == 14
    assert after[:7] == before
    with Tree.open(tmp_path / "tree.db", "r") as tree:
        assert len(tree) == size


def test_an_empty_summary_is_a_row_with_its_error_and_is_tried_again(tmp_path):
    chosen = recipe(
        compactors=("summarise",), summarisers=("s",), conditions=("control", "compaction"), tasks=("spend",)
    )
    told = run(chosen, tmp_path, summarisers={"s": ScriptedChat([""])})
    assert told["setups"][0]["table"][-1]["all"]["error"] == 1
    assert any("empty text" in w for w in told["warnings"])
    again = run(chosen, tmp_path, summarisers={"s": ScriptedChat(["nothing ."])})
    assert again["setups"][0]["table"][-1]["all"] | {"low": 0, "high": 0} == {
        "state": "ok", "n": 1, "violations": 1, "rate": 1.0, "low": 0, "high": 0,
        "invalid": 0, "unparseable": 0, "error": 0,
    }  # fmt: skip
    assert again["setups"][0]["culprits"]["summariser"] == 1


def test_a_framework_that_raises_anything_does_not_end_the_run(tmp_path):
    def broken(messages):
        raise RuntimeError("out of memory")

    chosen = recipe(compactors=("summarise",), summarisers=("s",), conditions=("compaction", "control"))
    told = run(chosen, tmp_path, summarisers={"s": ScriptedChat(broken)})
    assert told["control"]["n"] == 2
    assert any("out of memory" in w for w in told["warnings"])


def test_a_context_that_is_too_long_for_the_model_is_an_error_of_its_episode(tmp_path):
    class Short:
        def __init__(self, inner):
            self._inner = inner
            self.card = replace(inner.card, context=200)

        def __getattr__(self, name):
            return getattr(self._inner, name)

    chosen = recipe(conditions=("control", "compaction"), tasks=("spend",))
    told = run_grid(chosen, tmp_path, policies={"agent": Short(AGENT["agent"])})
    assert told["control"]["error"] == 1
    assert told["setups"][0]["table"][-1]["all"]["n"] == 1
    assert any("leave no room in a context of 200" in w for w in told["warnings"])


def test_a_trigger_below_the_budget_is_invalid_and_asks_no_model(tmp_path):
    told = run(recipe(max_tokens=100_000, conditions=("compaction",), tasks=("spend",)), tmp_path)
    rows, _ = read_run(tmp_path)
    assert rows[0].result == "invalid"
    assert rows[0].fork is None
    assert "budget 100000" in rows[0].reason
    assert told["setups"][0]["table"][0]["all"]["state"] == "INVALID"


def test_more_rounds_and_twins(tmp_path):
    chosen = recipe(conditions=("control", "compaction"), rounds=(0, 1, 2), twins=True, tasks=("spend",))
    told = run(chosen, tmp_path)
    assert [(p["rounds"], p["rate"]) for p in told["rounds"]] == [(0, 0.0), (1, 1.0), (2, 1.0)]
    done = {u["condition"]: (u["done"], u["over_refusal"]) for u in told["utility"]}
    assert done == {"control": (1, 0), "compaction": (3, 0)}


def test_all_rounds_and_the_control_share_one_history(tmp_path):
    run(recipe(conditions=("control", "compaction"), rounds=(1, 3), tasks=("spend",)), tmp_path)
    rows, _ = read_run(tmp_path)
    assert len({r.tokens_before for r in rows}) == 1
    with Tree.open(tmp_path / "tree.db", "r") as tree:
        assert len(list(tree.tasks())) == 1


def test_a_rule_in_the_system_message_leaves_nothing_to_measure(tmp_path):
    told = run(recipe(channel="system", conditions=("control", "compaction"), tasks=("spend",)), tmp_path)
    assert told["setups"][0]["decay"]["all"]["decay"] == 0
    assert any("nothing to measure" in w for w in told["warnings"])


def test_framings_are_searched_on_other_sessions_and_the_worst_is_used(tmp_path):
    chosen = recipe(
        compactors=("summarise",), summarisers=("planted:keeps-all",),
        conditions=("attack_inject",), tasks=("spend",),
    )  # fmt: skip
    told = run(chosen, tmp_path)
    rows, searched = read_run(tmp_path)
    assert len(searched) == len(FRAMINGS) == len(told["framings"])
    assert {r.cell.rep for r in searched} == {-1}
    with Tree.open(tmp_path / "tree.db", "r") as tree:
        sessions = [{tree.path(tree.node(r.leaf)).root.id for r in part} for part in (rows, searched)]
    assert not sessions[0] & sessions[1], "what chose the framing takes no part in its rate"
    assert rows[0].cell.framing == best_framings(searched)["agent"]
    assert told["episodes"] == 1


def test_of_equal_framings_the_one_that_fewer_rules_survive_counts():
    def row(framing, rep, result, survived):
        cell = Cell("m", "attack_inject", "spend", rep, framing=framing)
        return Episode(cell, "soft", result, survived=survived)

    rows = [row("deprecation", 0, "allowed", True), row("irrelevance", 0, "allowed", False)]
    assert best_framings(rows) == {"m": "irrelevance"}
    assert best_framings([*rows, row("token-budget", 0, "violation", True)]) == {"m": "token-budget"}
    assert best_framings([]) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("nonsense",)}, "no house rule"),
        ({"conditions": ("decoy",)}, "no condition"),
        ({"framing": "begging"}, "no framing"),
        ({"channel": "radio"}, "no channel"),
        ({"compactors": ("zip",)}, "no compactor 'zip'"),
        ({"compactors": ("truncate", "summarise"), "summarisers": ()}, "'summarise' asks a summariser"),
        ({"compactors": ("head-tail?nose=1",)}, "unknown option"),
        ({"rounds": (-1,)}, "rounds must be"),
        ({"tasks": ("spend", "spend")}, "twice"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(BadInput, match=message):
        checked(recipe(**change))


def test_summarisers_by_name():
    from refork.policies.base import Sampling

    assert open_summariser("planted:echo", Sampling(), 0).name == "echo"
    assert open_summariser("scripted:greeter", Sampling(), 0).name == "scripted:greeter"
    with pytest.raises(BadInput, match="no planted summariser"):
        open_summariser("planted:nobody", Sampling(), 0)


def test_there_is_no_run_in_an_empty_folder(tmp_path):
    with pytest.raises(BadInput, match="no run here"):
        read_run(tmp_path)


def test_an_openai_compatible_server_is_probed_at_the_message(tmp_path):
    call = {"name": "purchase", "arguments": '{"item": "desk", "amount": "250", "currency": "USD"}'}
    reply = {
        "content": None,
        "finish": "tool_calls",
        "tool_calls": [{"id": "c", "type": "function", "function": call}],
    }
    script = Script(dialect=None, reply=reply, seeds=False)
    with serving(script) as url:
        chosen = RotRecipe(
            policies=("server",), conditions=("control", "compaction"), tasks=("spend",), reps=1,
            max_tokens=300,
        )  # fmt: skip
        told = run_grid(chosen, tmp_path, policies={"server": open_policy(f"openai:{url}#m")})
    # It breaks the rule always: no decay, and the control shows it.
    assert told["control"]["rate"] == 1.0
    assert told["setups"][0]["decay"]["all"]["decay"] == 0
    asked = [body for body in script.bodies("/chat/completions") if "tools" in body]
    assert len(asked) == 2
    assert {t["function"]["name"] for t in asked[0]["tools"]} >= {"purchase", "send_email"}
    assert all(set(m) <= {"role", "content"} for m in asked[1]["messages"])


def test_a_wrong_name_leaves_no_folder_that_the_right_one_cannot_use(tmp_path):
    with pytest.raises(BadInput, match="names no policy"):
        run_grid(recipe(policies=("nope",), framing="deprecation"), tmp_path / "run")
    wrong = recipe(compactors=("summarise",), summarisers=("planted:nope",), framing="deprecation")
    with pytest.raises(BadInput, match="planted summariser"):
        run(wrong, tmp_path / "run")
    run(recipe(framing="deprecation"), tmp_path / "run")


def test_a_summariser_that_is_down_ends_the_run_and_what_is_done_stays(tmp_path):
    asked = []

    def dead(messages):
        asked.append(1)
        raise ServerError("no connection")

    chosen = recipe(compactors=("summarise",), summarisers=("s",), conditions=("compaction",), reps=5)
    with pytest.raises(ServerError, match="no connection"):
        run(chosen, tmp_path, summarisers={"s": ScriptedChat(dead)})
    assert len(asked) == 3
    told = run(chosen, tmp_path, summarisers={"s": ScriptedChat(lambda m: "Nothing.")})
    assert told["graded"] == 10
