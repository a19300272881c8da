"""From prompts to a drafter in a folder: what is read, what is foretold, what a second call does."""

import json

import numpy as np
import pytest

from refork.errors import Mismatch
from refork.policies.base import Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.data import parse_prompt
from refork_methods.speculate.train import ANSWERS, GREEDY, DraftTraining, plan_on_prompts, train_on_prompts
from support.models import tiny_policy

PROMPTS = [parse_prompt({"text": text}, "test") for text in ("once", "upon", "a time")]
LAW = Sampling(max_tokens=6, temperature=2.0)
TRAINING = DraftTraining(steps=2, batch=4, anchors=2, held_out=0.0, log=1)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def shape(policy):
    return draft_config(policy, layers=1, rank=4, block=2)


def test_greedy_answers_are_read_beside_the_drawn_ones(policy, tmp_path):
    told = train_on_prompts(policy, PROMPTS, shape(policy), TRAINING, tmp_path, LAW, samples=2, greedy=True)
    assert told["data"]["sequences"] == 9
    assert (tmp_path / "draft.safetensors").exists()
    lines = [json.loads(line) for line in (tmp_path / GREEDY).read_text().splitlines()]
    assert lines[0]["settings"]["temperature"] == 0.0
    said = [line["parts"][0]["tokens"] for line in lines[1:]]
    asks = [Request(policy.encode(prompt.text), NoiseKey(9, 9, 9)) for prompt in PROMPTS]
    greedy = sample_all(policy, asks, LAW.but(temperature=0.0))
    assert said == [
        np.concatenate([ask.tokens, item.tokens]).tolist() for ask, item in zip(asks, greedy, strict=True)
    ]


def test_without_greedy_nothing_is_added(policy, tmp_path):
    told = train_on_prompts(policy, PROMPTS, shape(policy), TRAINING, tmp_path, LAW)
    assert told["data"]["sequences"] == 3
    assert (tmp_path / ANSWERS).exists()
    assert not (tmp_path / GREEDY).exists()
    again = train_on_prompts(policy, PROMPTS, shape(policy), TRAINING, tmp_path, LAW)
    assert again["data"] == told["data"]


def test_a_folder_of_other_reading_is_refused(policy, tmp_path):
    train_on_prompts(policy, PROMPTS, shape(policy), TRAINING, tmp_path, LAW)
    with pytest.raises(Mismatch):
        train_on_prompts(policy, PROMPTS, shape(policy), TRAINING, tmp_path, LAW, greedy=True)


def test_the_plan_counts_the_greedy_answers(policy):
    plain = plan_on_prompts(policy, PROMPTS, shape(policy), TRAINING, LAW, 2)
    both = plan_on_prompts(policy, PROMPTS, shape(policy), TRAINING, LAW, 2, greedy=True)
    assert (plain.conversations, both.conversations) == (6, 9)
    assert both.tokens == plain.tokens * 3 // 2
