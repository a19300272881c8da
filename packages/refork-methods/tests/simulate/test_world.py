import json
import re
from dataclasses import replace

import pytest

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from refork.worlds.base import Episode, Observation, Task, World
from refork.worlds.environment import Brief, Environment
from refork.worlds.simulated import Simulated, Simulator, StepsTogether
from refork.worlds.trajectories import Reads
from refork_methods.simulate.control.base import Controls
from refork_methods.simulate.episode import NO_ANSWER, SimulatedEpisode, action_of
from refork_methods.simulate.prompt import Asked
from refork_methods.simulate.world import WorldModel
from support.shelf import RIGHT, Shelf, model, respond, scripted_simulator

ACTIONS = ["ls", "rm a", "ls", "rm q", "submit 2"]
CHANCE = Sampling(max_tokens=40)


def several(prompt):
    """A simulator that is not sure what is in the folder."""
    right = respond(prompt)[0]
    return [right] if right != "b c" else ["b c", "b c d", "c"]


def task(world=None):
    return (world or Shelf()).tasks("train", 3)[0]


def test_a_simulated_world_answers_and_grades_as_the_real_one():
    base = Shelf()
    world = model().world(base)
    assert isinstance(world, World)
    assert isinstance(world, Environment)
    assert isinstance(world, Simulator)
    real, made = base.start(task(), 0), world.start(task(), 0)
    assert isinstance(made, Episode)
    assert isinstance(made, Simulated)
    assert isinstance(made, StepsTogether)
    for action in ACTIONS:
        expected, got = real.step(action), made.step(action)
        assert (got.text, got.done, got.reward) == (expected.text, expected.done, expected.reward)
        assert got.info == {}
    assert got.reward == 1.0
    assert made.step("ls").done
    assert (world.name, world.deterministic, world.max_turns) == ("simulated:shelf", False, 4)
    other = WorldModel(scripted_simulator(name="other")).world(base)
    assert world.version != other.version
    assert world.version.startswith("1+")


def test_a_simulated_world_reads_turns_as_its_base_does():
    class Shouting(Shelf):
        def action_in(self, turn):
            return turn.lower()

    world = model().world(Shouting())
    assert isinstance(world, Reads)
    assert world.action_in("LS") == "ls"
    assert model().world(Shelf()).action_in("```\nls\n```") == "ls", "a base that does not say"


def test_equal_seeds_give_equal_texts_and_a_snapshot_goes_on_exactly():
    world = model(several, settings=CHANCE).world(Shelf())

    def play(episode, actions):
        return [episode.step(action).text for action in actions]

    twice = [play(world.start(task(), 7), ["ls"] * 4) for _ in range(2)]
    assert twice[0] == twice[1]
    episode = world.start(task(), 7)
    episode.step("ls")
    saved = episode.snapshot()
    assert {"seen", "noise", "control"} < json.loads(saved).keys()
    rest = play(episode, ["ls"] * 3)
    assert play(world.restore(task(), saved), ["ls"] * 3) == rest == twice[0][1:]
    begin = world.restore(task(), saved)
    draws = {tuple(play(begin.fork(draw), ["ls"] * 3)) for draw in range(8)}
    assert len(draws) > 1, "other draws have other noise"
    assert tuple(rest) in {tuple(play(begin.fork(0), ["ls"] * 3))}
    with pytest.raises(BadInput, match="no snapshot of a simulated episode"):
        world.restore(task(), b'["ls"]')
    with pytest.raises(BadInput, match="is of task"):
        world.restore(Shelf().tasks("train", 3)[1], saved)


def test_an_episode_that_a_turn_without_a_call_ended_stays_over_in_its_forks():
    held = Task("t", "w", "train", "", {"tools": True})
    episode = SimulatedEpisode(model(), held, Brief(task_description="d", initial_state="a"))
    assert "over" not in json.loads(episode.snapshot())
    call = '{"name": "ls", "arguments": {}}'
    assert episode.step("I am done").done
    again = SimulatedEpisode.restored(model(), episode.snapshot(), held)
    for one in (episode, episode.fork(), again, again.fork(3)):
        assert one.step(call) == Observation("(the episode is over)", done=True)


def test_one_batch_gives_what_one_by_one_gives():
    world = model(several, settings=CHANCE).world(Shelf())
    actions = ["ls", "rm a", "ls", "submit 1", "touch z", "ls"]
    alone = [world.start(task(), seed).step(action) for seed, action in enumerate(actions)]
    together = [world.start(task(), seed) for seed in range(len(actions))]
    asked = []
    inner = together[0].model.predict
    together[0].model.predict = lambda batch: asked.append(len(batch)) or inner(batch)
    assert type(together[0]).step_together(together, actions) == alone
    assert asked == [len(actions)]


def test_an_answer_without_a_tag_is_asked_again_then_said_honestly():
    wrong = ["no tag", "<prediction>half"]
    policy = replies({"no tag": 0.6, "<prediction>a b</prediction>": 0.4})
    plenty = WorldModel(policy, settings=CHANCE, retries=9)
    none = WorldModel(policy, settings=CHANCE, retries=0)
    asked = [Asked(Brief(), (), "ls", NoiseKey(0, 1, draw)) for draw in range(40)]
    found, once = plenty.predict(asked), none.predict(asked)
    assert all(p.text == "a b" for p in found)
    assert {p.tries for p in found} > {1, 2}
    assert found[0].cost.tokens_out is not None
    assert [p.text for p in once if p.text] == [p.text for p in found if p.tries == 1]
    assert {p.error for p in once if p.text is None} == {"no complete tag"}
    with pytest.warns(UserWarning, match="initial state"):
        episode = WorldModel(replies(dict.fromkeys(wrong, 1.0)), retries=1).env()
    seen = episode.step("ls")
    assert seen.text == NO_ANSWER
    assert not seen.done
    assert seen.info["simulated"]["tries"] == 2


def replies(weights):
    from refork.policies.scripted import ScriptedPolicy

    return ScriptedPolicy.from_replies(weights)


class Small:
    """A policy with a context of so many tokens."""

    def __init__(self, inner, context):
        self.inner = inner
        self.card = replace(inner.card, context=context)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_history_is_cut_to_the_context_and_the_brief_kept():
    prompts = []
    policy = scripted_simulator(lambda prompt: prompts.append(prompt) or ["ok"])
    brief = Brief(initial_state="files : a")
    seen = tuple((f"touch f{n}", "ok") for n in range(30))
    full = WorldModel(policy, settings=CHANCE).predict([Asked(brief, seen, "ls", NoiseKey(0, 0, 0))])[0]
    assert full.cut == 0
    small = WorldModel(Small(policy, 240), settings=CHANCE)
    cut = small.predict([Asked(brief, seen, "ls", NoiseKey(0, 0, 0))])[0]
    assert 0 < cut.cut < 30
    assert cut.text == "ok"
    kept = re.findall(r"f(\d+)\n", prompts[-1])
    assert kept[-1] == "29"
    assert int(kept[0]) == cut.cut
    assert "files : a" in prompts[-1]
    none = WorldModel(Small(policy, 20), settings=CHANCE).predict(
        [Asked(brief, seen, "ls", NoiseKey(0, 0, 0))]
    )[0]
    assert none.text is None
    assert "context has 20" in none.error


class Loud:
    """A control that shouts."""

    name = "loud"

    def to_json(self):
        return {"control": "loud"}

    def instruction(self, at):
        return f"shout about {at.action}"

    def after(self, at, predicted):
        return predicted.upper(), {"why": "loud"} if at.action == "ls" else None


def test_controls_reach_the_model_the_answer_and_the_record():
    prompts = []
    policy = scripted_simulator(lambda prompt: prompts.append(prompt) or respond(prompt))
    world = WorldModel(policy, settings=CHANCE).world(Shelf(), Controls((Loud(), Loud())))
    episode = world.start(task(), 0)
    seen = episode.step("ls")
    assert seen.text == "B C"
    assert "shout about ls\nshout about ls" in prompts[0]
    assert seen.info["control"][0] == {"control": "loud", "changed": True, "why": "loud"}
    assert len(seen.info["control"]) == 2
    assert seen.info["control"][1]["changed"] is False
    assert episode.history == [("ls", "B C")], "the transcript holds what was said"
    assert episode.simulator["control"] == {"controls": [{"control": "loud"}] * 2}
    assert world.version != WorldModel(policy, settings=CHANCE).world(Shelf()).version


def test_reasoning_and_fences_are_no_part_of_an_action():
    assert action_of("<think>ls first</think>\nsome words\n```bash\nls -a\n```") == "ls -a"
    assert action_of("  rm a \n") == "rm a"
    episode = model().env(task(), world=Shelf())
    episode.step("<think>what is here</think>```\nls\n```")
    assert episode.history[0][0] == "ls"


def test_a_model_that_was_not_trained_here_is_told_the_form():
    asked = [Asked(Brief(task_description="a folder"), (), "ls", NoiseKey(0, 0, 0))]
    prompts = []
    policy = scripted_simulator(lambda prompt: prompts.append(prompt) or ["ok"])
    WorldModel(policy, prompted=True, think=True).predict(asked)
    WorldModel(policy).predict(asked)
    told, plain = prompts[0], prompts[-1]
    assert "between <prediction> and </prediction>" in told
    assert "<think>" in told
    assert "between" not in plain


def test_an_episode_under_gymnasiums_names():
    env = model().world(Shelf()).start(task(), 0).gym()
    with pytest.raises(BadInput, match="reset"):
        env.step("ls")
    first, info = env.reset(seed=3)
    assert first == "how many files ?"
    assert info["simulator"]["model"] == "shelf-model"
    assert env.step("ls")[:4] == ("b c", 0.0, False, False)
    assert env.step("submit 2")[:4] == (RIGHT, 1.0, True, False)
    env.reset()
    assert [env.step("ls")[3] for _ in range(4)] == [False, False, False, True]


def test_a_free_episode_needs_only_a_text():
    episode = model().env(Task("mine", "free", "train", "look"), "files : x y")
    assert episode.step("ls").text == "x y"
    assert not episode.graded
