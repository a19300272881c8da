import json
from dataclasses import replace

import pytest

from refork.errors import CannotDo, ReplayDiverged
from refork.forking import arm_summary, compare, compare_until, fork, parse_change, sweep, trace_report
from refork.forking.context import transcript
from refork.formats.openai_chat import OpenAIChat
from refork.growing import grow
from refork.judge import MatchJudge
from refork.policies.base import Continuation, Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds.open import open_world
from refork_methods.simulate.episode import SimulatedEpisode
from refork_methods.simulate.world import LearnedSimulator
from support.shelf import Shelf, model, respond

LAW = Sampling(max_tokens=12)
CHANCE = Sampling(max_tokens=40)


@pytest.fixture
def agent():
    return ScriptedPolicy.from_replies(["ls", "rm b", "touch z", "submit 2", "submit 1"])


@pytest.fixture
def simulator():
    return LearnedSimulator(model(settings=CHANCE))


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def point_in(tree, agent, world, draws=6):
    """A recorded observation in the middle of a run."""
    group = grow(tree, agent, world, world.tasks("train", 1), draws=draws, settings=LAW)[0]
    trajectory = max(group.forks[0].leaves(), key=len)
    return next(tree.at(s.node) for s in trajectory.steps[2:] if s.node.kind == "observation")


def own(arm):
    return [
        [s for s in trajectory if s.node.fork == arm.record.id and s.node.kind == "observation"]
        for trajectory in arm.leaves()
    ]


def texts(arm):
    return [[(s.node.kind, s.text) for s in trajectory] for trajectory in arm.leaves()]


def test_the_real_world_comes_first(tree, agent, simulator):
    point = point_in(tree, agent, Shelf())
    plain = fork(point, agent, 8, world=Shelf(saves=False))
    with_one = fork(point, agent, 8, world=Shelf(saves=False), simulator=simulator)
    assert with_one.record == plain.record
    assert with_one.tokens == 0, "it is the same arm"
    assert with_one.simulated == 0.0
    assert with_one.simulator is None


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Shelf(runs=False), "CannotDo: the real folder is not here"),
        (Shelf(saves=False, changed=True), "ReplayDiverged: replayed turn 1"),
    ],
)
def test_a_simulator_goes_on_where_the_world_cannot(tree, agent, simulator, broken, why):
    point = point_in(tree, agent, Shelf(saves=False))
    real = fork(point, agent, 8, world=Shelf(saves=False))
    with pytest.raises((CannotDo, ReplayDiverged)):
        fork(point, agent, 8, world=broken, seed=1)
    arm = fork(point, agent, 8, world=broken, simulator=simulator)
    assert texts(arm) == texts(real), "this simulator is perfect, so the draws are the real ones"
    assert arm.values() == real.values()
    assert arm.record.id != real.record.id
    nodes = [step.node for trajectory in own(arm) for step in trajectory]
    assert {n.origin for n in nodes} == {"simulated"}
    assert all(n.extra["simulator"] == simulator.identity for n in nodes)
    assert arm.record.extra["simulator"] == simulator.identity
    assert arm.record.extra["simulated"].startswith(why)
    graders = {p.name: p.config.get("simulator", {}).get("model") for p in tree.producers()}
    assert graders["world:simulated:shelf"] == "shelf-model"
    assert graders["world:shelf"] is None
    summary = arm_summary(arm)
    assert (summary["simulated"], summary["simulator"]["model"]) == (1.0, "shelf-model")
    again = fork(point, agent, 8, world=broken, simulator=simulator)
    assert again.tokens == 0
    assert again.record.id == arm.record.id


def test_a_mixed_comparison_says_so(tree, agent, simulator):
    point = point_in(tree, agent, Shelf(saves=False))
    real = fork(point, agent, 8, world=Shelf(saves=False))
    made = fork(point, agent, 8, world=Shelf(runs=False), simulator=simulator)
    mixed = compare(real, made)
    assert (mixed.base_simulated, mixed.other_simulated) == (0.0, 1.0)
    assert "the changed arm alone was answered by a simulator" in mixed.sentence
    assert "in the simulator" in compare(made, made).to_json()["caution"]
    assert compare(real, real).caution is None
    assert "caution" not in compare(real, real).to_json()


def test_what_was_simulated_goes_on_simulated(tree, agent, simulator):
    point = point_in(tree, agent, Shelf())
    arm = fork(point, agent, 8, world=Shelf(runs=False), simulator=simulator)
    step = next(trajectory[0] for trajectory in own(arm) if len(trajectory) > 1)
    with pytest.raises(CannotDo, match="answered by a simulator"):
        fork(tree.at(step.node), agent, 2, world=Shelf())
    later = fork(tree.at(step.node), agent, 4, world=Shelf(), simulator=simulator)
    assert later.simulated == 1.0


def test_a_simulated_world_grows_and_forks_its_own_tree(tree, agent):
    world = model(settings=CHANCE).world(Shelf())
    point = point_in(tree, agent, world)
    assert point.node.origin == "simulated"
    assert point.node.snapshot is not None
    arm = fork(point, agent, 8, world=world)
    assert arm.simulated == 1.0
    assert set(arm.values()) == {0.0, 1.0}
    restored = world.restore(world.tasks("train", 1)[0], tree.blob(point.node.snapshot))
    assert tuple(restored.history) == transcript(tree.path(point))


def test_batched_answers_are_the_single_ones(tree, agent, simulator, monkeypatch):
    unsure = LearnedSimulator(
        model(lambda p: [respond(p)[0], "who knows", *([] if "rm b" in p else ["b"])], settings=CHANCE)
    )
    point = point_in(tree, agent, Shelf())
    batches = []
    inner = SimulatedEpisode.step_together.__func__

    def counted(cls, episodes, actions):
        batches.append(len(episodes))
        return inner(cls, episodes, actions)

    monkeypatch.setattr(SimulatedEpisode, "step_together", classmethod(counted))
    batched = fork(point, agent, 16, world=Shelf(runs=False), simulator=unsure)
    assert max(batches) == 16
    with Tree.memory() as other:
        alone = point_in(other, agent, Shelf())
        monkeypatch.setattr("refork.forking.run_on.together", lambda episode: None)
        single = fork(alone, agent, 16, world=Shelf(runs=False), simulator=unsure)
        assert texts(single) == texts(batched)
        assert single.values() == batched.values()
    assert len({tuple(trajectory) for trajectory in map(tuple, texts(batched))}) > 8


def test_an_episode_that_breaks_ends_its_draw_alone(tree, agent, simulator, monkeypatch):
    point = point_in(tree, agent, Shelf())
    inner = SimulatedEpisode._asking

    def fragile(self, turn):
        if turn.startswith("rm"):
            raise ValueError("broken")
        return inner(self, turn)

    monkeypatch.setattr(SimulatedEpisode, "_asking", fragile)
    arm = fork(point, agent, 16, world=Shelf(runs=False), simulator=simulator)
    failed = [d for d in arm.draws if d.end == "error"]
    assert 0 < len(failed) < 16
    assert all("broken" in d.error for d in failed)


def test_sweeps_and_sequential_comparisons_take_a_simulator(tree, agent, simulator):
    point = point_in(tree, agent, Shelf())
    swept = sweep(point, agent, 4, every="turn", world=Shelf(runs=False), simulator=simulator)
    assert swept.simulated == 1.0
    assert trace_report(swept)["simulated"] == 1.0
    change = parse_change(["policy:scripted:greeter"], lambda s: agent, open_world)
    effect = compare_until(
        point, agent, change, batch=4, max_draws=4, world=Shelf(runs=False), simulator=simulator
    )
    assert effect.base_simulated == effect.other_simulated == 1.0


CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "list_files", "arguments": '{"path": "."}'},
}
LOG = [
    {"role": "system", "content": "files : a b"},
    {"role": "user", "content": "what is here ?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    {"role": "assistant", "content": "two files"},
]
TOOLS = [{"type": "function", "function": {"name": "list_files", "parameters": {}}}]


class Chatty:
    """A policy that takes messages only: it calls the tool once more, then answers."""

    def __init__(self):
        plain = ScriptedPolicy.from_replies(["x"]).card
        self.card = replace(plain, name="chatty", kind="remote", weights=None, capabilities=frozenset())
        self.asked = []

    def sample(self, requests, settings):
        for index, request in enumerate(requests):
            self.asked.append(request.messages)
            again = sum(m["role"] == "tool" for m in request.messages) < 2
            message = {"role": "assistant", "content": "" if again else "I saw a b"}
            message |= {"tool_calls": [CALL | {"id": "c2"}]} if again else {}
            yield Continuation(index, token_array([]), message["content"], "stop", message=message)


def imported(tree, tmp_path, messages, policy=None, **keys):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"messages": messages} | keys) + "\n")
    tree.load(OpenAIChat(policy).read(path))
    trajectory = tree.path(next(iter(tree.leaves())))
    return {s.node.kind + str(i): s.node for i, s in enumerate(trajectory.steps)}


def test_an_imported_tool_log_forks_at_any_message(tree, tmp_path):
    nodes = imported(tree, tmp_path, LOG, tools=TOOLS)
    prompts = []
    simulator = LearnedSimulator(model(lambda p: prompts.append(p) or ["a b c"]))
    for name in ("task0", "action1", "observation2"):
        policy = Chatty()
        arm = fork(
            tree.at(nodes[name]), policy, 2, simulator=simulator, judge=MatchJudge("I saw"), max_turns=3
        )
        assert arm.values() == [1.0, 1.0]
        assert {d.end for d in arm.draws} == {"done"}
        assert arm.simulated == 1.0
        last = policy.asked[-1]
        assert [m["role"] for m in last[2:]] == ["assistant", "tool"] * 2
        assert last[-1] == {
            "role": "tool",
            "tool_call_id": last[-2]["tool_calls"][0]["id"],
            "content": "a b c",
        }
        assert policy.asked[0][0]["tools"] == TOOLS
    told = prompts[-1]
    assert '{"name":"list_files","arguments":{"path":"."}}\n' in told
    assert "list_files" in told.partition("# ")[2]
    assert {trajectory.leaf.text for trajectory in arm.leaves()} == {"ungraded"}


def test_an_imported_text_log_forks_with_tokens(tree, tmp_path):
    agent = ScriptedPolicy.from_replies(["ls", "rm a"])
    log = [
        {"role": "user", "content": "files : a b"},
        {"role": "assistant", "content": "ls"},
        {"role": "user", "content": "a b"},
        {"role": "assistant", "content": "rm a"},
    ]
    nodes = imported(tree, tmp_path, log, agent)
    simulator = LearnedSimulator(model())
    for name in ("task0", "observation2", "action3"):
        arm = fork(tree.at(nodes[name]), agent, 3, settings=LAW, simulator=simulator, max_turns=3)
        assert {d.end for d in arm.draws} == {"limit"}
        assert arm.simulated == 1.0
        assert all(len(trajectory) == 3 for trajectory in own(arm))
    assert own(arm)[0][0].text == "ok", "the recorded removal is answered first"
    assert arm.values() == [None] * 3, "nobody can grade it"
