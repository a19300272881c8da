import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork.types import token_array
from refork_methods.train.batch import Sample, pad, sampled_tokens, trajectories_to_batch, trajectory_samples


def logprobs(*values):
    return np.array(values, dtype=np.float32)


def test_only_sampled_tokens_are_learned_and_ids_stay_as_recorded(node, walk):
    walked = walk(
        node("t", "task", [5, 6]),
        node("a", tokens=[7, 8], logprobs_t1=logprobs(-0.5, -0.25)),
        node("o", "observation", [9]),
        node("b", tokens=[1, 2, 3], logprobs_t1=logprobs(-1, -2, -3)),
        node("v", "verdict"),
    )
    batch = trajectories_to_batch([walked], [0.5])
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 1, 2, 3]]
    assert batch.mask.int().tolist() == [[0, 0, 1, 1, 0, 1, 1, 1]]
    assert batch.logprobs_t1.tolist() == [[0, 0, -0.5, -0.25, 0, -1, -2, -3]]
    assert batch.advantages.tolist() == [[0, 0, 0.5, 0.5, 0, 0.5, 0.5, 0.5]]
    assert batch.attention.all()
    assert batch.ref_logprobs is None


def test_inserted_forced_and_cut_tokens_are_not_learned(node, walk):
    inserted = node("i", tokens=[4], logprobs_t1=None)
    forced = node("f", tokens=[1, 2, 3], settings={"forced": [1]})
    half = node("h", tokens=[1, 2], logprobs_t1=logprobs(np.nan, -1))
    assert sampled_tokens(inserted).tolist() == [False]
    assert sampled_tokens(forced).tolist() == [False, True, True]
    assert sampled_tokens(half).tolist() == [False, True]
    assert not sampled_tokens(node("o", "observation", [1], logprobs_t1=logprobs(-1))).any()
    walked = walk(node("t", "task", [5]), forced, inserted, keeps=(None, 2))
    batch = trajectories_to_batch([walked], [1.0])
    assert batch.tokens.tolist() == [[5, 1, 2, 4]]
    assert batch.mask.int().tolist() == [[0, 0, 1, 0]]


def test_token_advantages_and_unknown_ones(node, walk):
    walked = walk(node("t", "task", [5]), node("a", tokens=[1, 2, 3]), node("v", "verdict"))
    batch = trajectories_to_batch([walked], [[9.0, 0.25, np.nan, -1.0]])
    assert batch.mask.int().tolist() == [[0, 1, 0, 1]]
    assert batch.advantages.tolist() == [[0, 0.25, 0, -1]]


def test_a_shared_token_is_learned_once(node, walk):
    task, first = node("t", "task", [5]), node("a", tokens=[1, 2])
    trajectories = [
        walk(task, first, node("b", tokens=[3])),
        walk(task, first, node("c", tokens=[4]), keeps=(None, 1)),
    ]
    once = trajectories_to_batch(trajectories, [1.0, -1.0])
    assert once.mask.int().tolist() == [[0, 1, 1, 1], [0, 0, 1, 0]]
    assert once.attention.int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    every = trajectories_to_batch(trajectories, [1.0, -1.0], once=False)
    assert every.mask.int().tolist() == [[0, 1, 1, 1], [0, 1, 1, 0]]


def test_a_rewrite_begins_a_new_sample(node, walk):
    walked = walk(
        node("t", "task", [5]), node("a", tokens=[1]), node("r", "rewrite", [8, 9]), node("b", tokens=[2])
    )
    samples = trajectory_samples(walked, [0, 1.0, 0, 0, 2.0])
    assert [s.tokens.tolist() for s in samples] == [[5, 1], [8, 9, 2]]
    assert [s.mask.tolist() for s in samples] == [[False, True], [False, False, True]]
    assert samples[1].advantages.tolist() == [0, 0, 2]


def test_reference_logprobs_only_where_all_learned_tokens_have_them(node, walk):
    task = node("t", "task", [5])
    with_ = walk(task, node("a", tokens=[1], ref_logprobs=logprobs(-3)))
    without = walk(task, node("b", tokens=[2]))
    batch = trajectories_to_batch([with_], [1.0])
    assert batch.ref_logprobs[batch.mask].tolist() == [-3]
    assert trajectories_to_batch([with_, without], [1.0, 1.0]).ref_logprobs is None


def test_a_first_token_is_never_learned(node, walk):
    batch = trajectories_to_batch([walk(node("a", tokens=[1, 2]))], [1.0])
    assert batch.mask.int().tolist() == [[0, 1]]


def test_refusals(node, walk):
    task = node("t", "task", [5])
    good = walk(task, node("a", tokens=[1]))
    with pytest.raises(BadInput, match="2 trajectories"):
        trajectories_to_batch([good, good], [1.0])
    with pytest.raises(BadInput, match="3 advantages for a trajectory of 2"):
        trajectories_to_batch([good], [[1.0, 2.0, 3.0]])
    with pytest.raises(BadInput, match="none of these trajectories"):
        trajectories_to_batch([walk(task)], [1.0])
    with pytest.raises(BadInput, match="without token ids"):
        trajectories_to_batch([walk(task, node("b", tokens=None, text="hi", logprobs_t1=None))], [1.0])
    tokens, on = token_array([1, 2]), np.array([False, True])
    with pytest.raises(BadInput, match="differ in length"):
        Sample(tokens, on[:1], logprobs(0, 0), np.zeros(2))
    with pytest.raises(BadInput, match="first token"):
        pad([Sample(tokens, ~on, logprobs(0, 0), np.zeros(2))])
    with pytest.raises(BadInput, match="token 1"):
        pad([Sample(tokens, on, logprobs(0, np.nan), np.zeros(2))])
    with pytest.raises(BadInput, match="nothing"):
        pad([])


def test_a_batch_splits_into_trimmed_parts():
    def sample(size, learned):
        return Sample(
            token_array(range(size)), np.array(learned, dtype=bool), np.zeros(size, np.float32), np.ones(size)
        )

    batch = pad([sample(2, [0, 1]), sample(4, [0, 0, 0, 0]), sample(3, [0, 1, 1])], pad_id=9)
    assert batch.tokens[0].tolist() == [0, 1, 9, 9]
    parts = list(batch.split(1))
    assert [p.tokens.shape for p in parts] == [(1, 2), (1, 3)]
    assert [p.tokens.shape for p in batch.split(2)] == [(2, 4), (1, 3)]
    assert batch.to("cpu").tokens.equal(batch.tokens)
    assert torch.is_tensor(parts[0].mask)
