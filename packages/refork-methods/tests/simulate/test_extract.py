"""Extraction is strict: only the last complete tag outside of reasoning counts, whatever is tried."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.policies.open import scripted
from refork.worlds.environment import Brief
from refork_methods.simulate.episode import SimulatedEpisode
from refork_methods.simulate.prompt import (
    TAG,
    answer,
    escaped,
    extract_prediction,
    matches,
    messages,
    thoughts,
    unescaped,
    without_think,
)
from refork_methods.simulate.world import WorldModel

P, Q = "<prediction>", "</prediction>"
ADVERSARIAL = {
    f"{P}a{Q}": "a",
    f"{P}a{Q} and {P}b{Q}": "b",
    f"<think>x{P}fake{Q}</think>{P}real{Q}": "real",
    f"<think>a<think>b</think>{P}fake{Q}</think>{P}real{Q}": "real",
    f"<think>never closed {P}fake{Q}": None,
    f"{P}early{Q}<think>x</think>": "early",
    f"{P}early{Q}</think>": None,
    f"opened by the prompt {P}fake{Q}</think>{P}real{Q}": "real",
    f"{P}a{P}b{Q}c{Q}": "b",
    f"{P}whole{Q}{P}cut off": "whole",
    f"{P}cut off": None,
    f"no tag {Q}": None,
    "": None,
    f"{P}{Q}": "",
    f"{P}two\nlines{Q}trailing praise": "two\nlines",
    "<Prediction>a</Prediction>": None,
}


@pytest.mark.parametrize(("text", "expected"), ADVERSARIAL.items())
def test_adversarial_outputs(text, expected):
    assert extract_prediction(text) == expected


@pytest.mark.parametrize(
    "hidden", ["</prediction>", "<think>", "a<prediction>b</prediction>", r"<\think>", "</think>"]
)
def test_an_observation_may_hold_the_tags(hidden):
    said = answer(hidden, note=f"it prints {hidden}")
    assert extract_prediction(said) == hidden
    assert thoughts(said) == f"it prints {hidden}"


@given(st.text(alphabet="<>/\\abprediction think\n", max_size=60), st.text(alphabet="<think>/x", max_size=30))
def test_every_text_survives_the_tag(observation, note):
    assert unescaped(escaped(observation)) == observation
    assert extract_prediction(answer(observation, note)) == observation
    assert extract_prediction(f"{P}praise{Q}" + answer(observation, note) + "so good") == observation


def test_thoughts_and_matches():
    assert without_think("a<think>b</think>c") == "ac"
    assert thoughts(f"so <think>I see</think>{P}x{Q}") == "so I see"
    assert matches("a\n", "a")
    assert not matches(" a", "a")
    assert not matches(None, "")


_PIECES = st.sampled_from(
    ["<think>", "</think>", f"<{TAG}>", f"</{TAG}>", "<\\", "\\", "\n", "'", '"', "$(rm)", "; ls", "`x`",
     '{"name": "a", "arguments": {"q": "{}"}}', "# initial state", "<|im_start|>system", "a", " "]
)  # fmt: skip
_TEXTS = st.lists(_PIECES, max_size=6).map("".join)


@given(st.lists(st.tuples(_TEXTS, _TEXTS), max_size=2), _TEXTS, _TEXTS)
@settings(max_examples=60, deadline=None)
def test_no_action_or_observation_leaves_its_place(seen, action, observation):
    """One system message, roles in turn, each observation read back whole; a snapshot goes on as it was."""
    chat = messages(Brief(initial_state=action), seen, action)
    roles = ["system"] * bool(action) + ["user", "assistant"] * len(seen) + ["user"]
    assert [message["role"] for message in chat] == roles
    texts = [message["content"] for message in chat[bool(action) :]]
    assert texts[0::2] == [done for done, _ in seen] + [action]
    assert [extract_prediction(text) for text in texts[1::2]] == [text for _, text in seen]
    assert extract_prediction(answer(observation, action)) == observation
    episode = WorldModel(scripted("coin")).env(None, Brief(initial_state="x"), history=seen)
    twin = SimulatedEpisode.restored(episode.model, episode.snapshot())
    assert twin.step(action) == episode.step(action)
    assert (twin.history, twin.noise) == (episode.history, episode.noise)
