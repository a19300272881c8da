"""The live decoder says what the branching decoder says, whoever joins and leaves."""

import numpy as np
import pytest
import torch

from refork.decoding.live import DrawRequest, LiveDecoder
from refork.decoding.loop import BranchDecoder
from refork.decoding.score import hidden
from refork.decoding.session import NEVER, Ends
from refork.decoding.states import Edit
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from support import decoder_models as models
from support.decoder_oracle import Oracle

PREFIXES = models.prefixes()
LAWS = [
    Sampling(max_tokens=24),
    Sampling(max_tokens=9, temperature=0),
    Sampling(max_tokens=70, top_k=5, temperature=0.7, coupling="gumbel"),
    Sampling(max_tokens=30, top_p=0.8, forced=(3, 4), banned_first=(9,), banned=(1,), entropy_top_k=5),
    Sampling(max_tokens=40, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=-0.7, min_p=0.02),
]
ENDS = [
    NEVER,
    Ends(frozenset({3, 17})),
    Ends(frozenset({5}), lambda tokens: int(tokens[-2:].sum()) > 170),
    NEVER,
    Ends(frozenset({3})),
]
JOBS = 30


@pytest.fixture(scope="module")
def backbone(built):
    return built("llama")[1]


@pytest.fixture(scope="module")
def jobs():
    rng = np.random.default_rng(0)
    return [(int(rng.integers(len(PREFIXES))), int(rng.integers(len(LAWS)))) for _ in range(JOBS)]


@pytest.fixture(scope="module")
def truth(backbone, jobs):
    """What the branching decoder says for every job."""
    found = {}
    for which, settings in enumerate(LAWS):
        mine = [i for i, (_, distribution) in enumerate(jobs) if distribution == which]
        noise = [NoiseKey(1, 2, i) for i in mine]
        prefixes = [PREFIXES[jobs[i][0]] for i in mine]
        for item in BranchDecoder(backbone).sample(prefixes, noise, settings, ENDS[which]):
            found[mine[item.index]] = item
    return found


def ask(jobs, i):
    prefix, distribution = jobs[i]
    return DrawRequest(PREFIXES[prefix], NoiseKey(1, 2, i), LAWS[distribution], ENDS[distribution])


def simple(i, settings=LAWS[0], prefix=PREFIXES[12], top=0):
    return DrawRequest(prefix, NoiseKey(1, 2, i), settings, NEVER, top)


def drive(live, asks, seed=0, cancelled=()):
    """Submit in random portions between steps; all that was said of each ask."""
    rng, said, request_ids, at = np.random.default_rng(seed), {}, {}, 0
    while at < len(asks) or not live.idle:
        for _ in range(int(rng.integers(0, 4))):
            if at < len(asks):
                request_ids[live.submit(asks[at])] = at
                at += 1
        if rng.random() < 0.3:
            for request_id in [t for t, i in request_ids.items() if i in cancelled][:1]:
                live.cancel(request_id)
                said.pop(request_ids.pop(request_id), None)
        heard = live.step()
        assert len({item.request_id for item in heard}) == len(heard)
        for item in heard:
            said.setdefault(request_ids[item.request_id], []).append(item)
    return said


def joined(parts, name):
    return np.concatenate([getattr(part, name) for part in parts])


def assert_says(parts, true):
    """Token for token, bit for bit."""
    for name in ("tokens", "logprobs", "logprobs_t1"):
        assert joined(parts, name).tobytes() == getattr(true, name).tobytes()
    if true.entropy is None:
        assert all(part.entropy is None for part in parts)
    else:
        assert joined(parts, "entropy").tobytes() == true.entropy.tobytes()
    assert parts[-1].finish == true.finish
    assert all(part.finish is None for part in parts[:-1])
    assert sum(part.ties for part in parts) == true.ties


@pytest.mark.parametrize(("width", "chunk", "seed"), [(9, 16, 0), (64, 128, 1)])
def test_it_says_what_the_branching_decoder_says(backbone, jobs, truth, width, chunk, seed):
    live = LiveDecoder(BranchDecoder(backbone), width=width, chunk=chunk)
    cancelled = set(np.random.default_rng(seed).choice(JOBS, 10, replace=False).tolist())
    said = drive(live, [ask(jobs, i) for i in range(JOBS)], seed, cancelled)
    assert set(range(JOBS)) - cancelled <= set(said)
    for i in set(said) - cancelled:
        assert_says(said[i], truth[i])
    assert (live.waiting, live.running, live.idle) == (0, 0, True)


def test_speculation_changes_nothing_but_the_passes(backbone, jobs, truth):
    oracle = Oracle({i: item.tokens for i, item in truth.items()})
    live = LiveDecoder(BranchDecoder(backbone), width=9, chunk=16, speculator=oracle)
    cancelled = {3, 11, 20}
    said = drive(live, [ask(jobs, i) for i in range(JOBS)], 5, cancelled)
    for i in set(said) - cancelled:
        assert_says(said[i], truth[i])
    assert not oracle.present
    parts = [part for i, mine in said.items() if i not in cancelled for part in mine]
    assert sum(part.drafted for part in parts) > sum(part.accepted for part in parts) > 0
    assert all(len(part.tokens) <= 1 + part.drafted for part in parts)
    # Some branch ended inside a run of accepted drafts.
    assert any(part.finish is not None and part.accepted == len(part.tokens) > 1 for part in parts)


def test_hidden_states_are_those_of_the_tokens(backbone, truth):
    """The same prompt twice, the second time from the cache, and one shorter than the window."""
    decoder = BranchDecoder(backbone)
    for round_, prefix in enumerate([PREFIXES[6], PREFIXES[6], PREFIXES[1]]):
        item = next(iter(decoder.sample([prefix], [NoiseKey(1, 2, 0)], LAWS[0])))
        oracle = Oracle({0: item.tokens}, layers=(0, -1), seed=round_)
        live = LiveDecoder(decoder, speculator=oracle)
        drive(live, [simple(0, prefix=prefix)])
        (states,) = oracle.gone.values()
        start = max(0, len(prefix) - oracle.window)
        whole = np.concatenate([prefix, item.tokens])
        wanted = hidden(decoder, [whole], (0, -1), [start])[0].transpose(1, 0, 2)
        assert len(states) >= len(prefix) - start
        count = min(len(states), len(wanted))
        np.testing.assert_allclose(states[:count].numpy(), wanted[:count], atol=2e-5)
        before = len(prefix) - start
        assert states[:before].numpy().tobytes() == np.ascontiguousarray(wanted[:before]).tobytes()


def test_edits_act_and_stay_exact(backbone):
    push = torch.linspace(-1, 1, 64)
    edit = Edit(1, lambda states: states + push, "push", "all", "decode")
    decoder = BranchDecoder(backbone, edits=(edit,))
    noise = [NoiseKey(1, 2, i) for i in range(6)]
    prefixes = [PREFIXES[i] for i in (4, 4, 6, 8, 9, 12)]
    true = {item.index: item for item in decoder.sample(prefixes, noise, LAWS[0])}
    plain = {item.index: item for item in BranchDecoder(backbone).sample(prefixes, noise, LAWS[0])}
    assert any(true[i].tokens.tobytes() != plain[i].tokens.tobytes() for i in true)
    asks = [simple(i, prefix=prefix) for i, prefix in enumerate(prefixes)]
    for speculator in (None, Oracle({i: item.tokens for i, item in true.items()})):
        for i, parts in drive(LiveDecoder(decoder, width=4, speculator=speculator), asks).items():
            assert_says(parts, true[i])


def test_shared_beginnings_are_computed_once(backbone):
    live = LiveDecoder(BranchDecoder(backbone))
    base = PREFIXES[6]
    long = Sampling(max_tokens=60)
    drive(live, [simple(0, prefix=base)])
    granule = backbone.granule
    once = live.prompts.computed
    assert once == -(-len(base) // granule) * granule
    for i in range(6):
        live.submit(simple(i, long, base.copy()))
        live.step()
    assert live.running == 6
    tail = len(base) % 64
    assert live.prompts.computed == once + -(-tail // granule) * granule  # only what no block holds
    held = live.prompts.prefix_cache.bytes
    live.submit(simple(9, long, base))
    live.step()
    assert live.prompts.prefix_cache.bytes == held
    other = np.concatenate([base[:256], PREFIXES[12]])
    before = live.prompts.computed
    live.submit(simple(10, long, other))
    live.step()
    assert live.prompts.computed == before + -(-7 // granule) * granule


def test_long_prompts_do_not_starve_running_branches(backbone):
    live = LiveDecoder(BranchDecoder(backbone), chunk=backbone.granule)
    first = live.submit(simple(0, Sampling(max_tokens=60)))
    live.step()
    late = live.submit(simple(1, prefix=PREFIXES[6]))
    steps = 0
    while live.waiting:
        heard = [item.request_id for item in live.step()]
        steps += 1
        assert first in heard
    assert steps == -(-len(PREFIXES[6]) // backbone.granule)
    assert late in heard


def errors_of(live, asks):
    said = drive(live, asks)
    return {i: parts[-1].error for i, parts in said.items() if parts[-1].finish == "error"}, said


def test_one_bad_request_ends_alone(backbone, jobs, truth):
    every = tuple(range(models.VOCABULARY))
    bad = [
        simple(0, prefix=np.zeros(0, dtype=np.int32)),
        simple(0, prefix=np.zeros(512, dtype=np.int32)),
        simple(0, prefix=np.array([1, models.VOCABULARY], dtype=np.int32)),
        simple(0, Sampling(banned=every)),
        simple(0, Sampling(max_tokens=9, banned_first=every, forced=(5, 6))),
    ]
    good = [ask(jobs, i) for i in range(6)]
    found, said = errors_of(LiveDecoder(BranchDecoder(backbone)), good + bad)
    words = ["empty", "no room", "outside the vocabulary", "banned", "banned"]
    assert sorted(found) == list(range(6, 11))
    assert all(word in found[6 + i] for i, word in enumerate(words))
    assert joined(said[10], "tokens").tolist() == [5, 6]
    for i in range(6):
        assert_says(said[i], truth[i])


@pytest.mark.parametrize("speculated", [False, True])
def test_a_row_that_is_not_finite_ends_alone(backbone, jobs, truth, speculated):
    """Its keys and values are not finite either, and others come to lie where it was."""

    poison = Edit(0, lambda states: torch.where(states[:, :1] > 1e6, torch.nan, states), "spoil")
    clean = [np.where(prefix == 99, 98, prefix).astype(np.int32) for prefix in PREFIXES]
    table = backbone.model.get_input_embeddings().weight
    row = table.data[99].clone()
    try:
        table.data[99] = 2e6
        decoder = BranchDecoder(backbone, edits=(poison,))
        sound = [simple(i, LAWS[0].but(banned=(99,)), clean[4]) for i in range(12)]
        noise = [item.noise for item in sound]
        true = {
            item.index: item
            for item in decoder.sample([a.tokens for a in sound], noise, LAWS[0].but(banned=(99,)))
        }
        sick = [simple(50 + i, Sampling(forced=(7, 99, 8), max_tokens=9), clean[12]) for i in range(6)]
        asks = [item for pair in zip(sick, sound[:6], strict=True) for item in pair] + sound[6:]
        oracle = Oracle({i: item.tokens for i, item in true.items()} | {i: [7, 99, 8] for i in range(50, 56)})
        live = LiveDecoder(decoder, width=4, speculator=oracle if speculated else None)
        found, said = errors_of(live, asks)
    finally:
        table.data[99] = row
    assert sorted(found) == [0, 2, 4, 6, 8, 10]
    assert all("not finite" in why for why in found.values())
    order = [1, 3, 5, 7, 9, 11, *range(12, 18)]
    for i, place in enumerate(order):
        assert_says(said[place], true[i])


def test_top_log_probs_are_those_of_the_law(backbone):
    live = LiveDecoder(BranchDecoder(backbone))
    said = drive(live, [simple(0, top=3), simple(1), simple(2, Sampling(max_tokens=5, temperature=0), top=1)])
    assert all(part.top is None for part in said[1])
    for i, count in ((0, 3), (2, 1)):
        for part in said[i]:
            ids, logs = part.top[0]
            assert (len(part.top), len(ids), len(logs)) == (1, count, count)
            assert (np.diff(logs) <= 0).all()
            chosen = np.flatnonzero(ids == part.tokens[0])
            assert all(abs(logs[c] - part.logprobs_t1[0]) < 1e-6 for c in chosen)
    assert all(part.top[0][0][0] == part.tokens[0] for part in said[2])


def test_a_thousand_cancelled_requests_leave_nothing(backbone):
    live = LiveDecoder(BranchDecoder(backbone, memory=1 << 20), width=16)
    empty, rng, held = live.bytes, np.random.default_rng(0), []
    for i in range(1000):
        words = rng.integers(0, models.VOCABULARY, int(rng.integers(2, 90))).astype(np.int32)
        request_id = live.submit(simple(i, Sampling(max_tokens=400), words))
        if i % 7 == 0:
            live.step()
        if i % 3 or live.running > 12:
            live.cancel(request_id)
        if i % 50 == 49:
            for other in range(request_id + 1):
                live.cancel(other)
            assert live.idle
            held.append(live.bytes - live.decoder.cache.bytes)
    assert max(held) == empty
    assert live.decoder.cache.bytes <= live.decoder.cache.limit
    assert not live.prompts._known
    assert not live.prompts._users


def test_memory_bounds_what_runs_at_once(backbone):
    decoder = BranchDecoder(backbone, memory=200_000)
    prompts = [np.random.default_rng(i).integers(0, 101, 60).astype(np.int32) for i in range(12)]
    live, most, held = LiveDecoder(decoder), 0, 0
    for i, words in enumerate(prompts):
        live.submit(simple(i, prefix=words))
    while not live.idle:
        live.step()
        most, held = max(most, live.running), max(held, live.prompts.prefix_cache.bytes)
    assert 1 <= most < 12
    assert held <= 2 * decoder.memory


def test_widths_and_chunks_must_be_positive(backbone):
    with pytest.raises(BadInput, match="at least 1"):
        LiveDecoder(BranchDecoder(backbone), width=0)


def test_after_a_step_that_failed_it_can_be_cleared_and_goes_on(backbone, monkeypatch):
    (fresh,) = drive(LiveDecoder(BranchDecoder(backbone)), [simple(9)]).values()
    oracle = Oracle({9: joined(fresh, "tokens")})
    live = LiveDecoder(BranchDecoder(backbone), width=4, speculator=oracle)
    for i in range(6):
        live.submit(simple(i))
    live.step()
    with monkeypatch.context() as patch:
        patch.setattr(oracle, "draft", lambda branches: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            live.step()
    assert oracle.present
    live.clear()
    assert not oracle.present
    assert (live.idle, live.running, live.waiting) == (True, 0, 0)
    assert live.bytes == LiveDecoder(live.decoder, width=4).bytes
    (again,) = drive(live, [simple(9)]).values()
    for name in ("tokens", "logprobs"):
        assert joined(again, name).tobytes() == joined(fresh, name).tobytes()


def test_a_long_beginning_is_held_once_by_prompts_that_come_one_by_one(backbone):
    rng = np.random.default_rng(3)
    head = rng.integers(0, 90, 300)
    prompts = [np.concatenate([head, rng.integers(0, 90, 20 + i)]).astype(np.int32) for i in range(12)]
    distribution, noise = Sampling(max_tokens=40), [NoiseKey(1, 2, i) for i in range(12)]
    truth = {item.index: item for item in BranchDecoder(backbone).sample(prompts, noise, distribution, NEVER)}
    live, said, request_ids = LiveDecoder(BranchDecoder(backbone), width=12), {}, {}
    while len(request_ids) < 12 or not live.idle:
        if len(request_ids) < 12:
            i = len(request_ids)
            request_ids[live.submit(DrawRequest(prompts[i], noise[i], distribution))] = i
        for item in live.step():
            said.setdefault(request_ids[item.request_id], []).append(item)
        # The first one whole, the shared prefix, and of every other one its end, in a stack with room for as
        # many.
        blocks = live.prompts.prefix_cache.bytes / backbone.shape.bytes_per_token / 64
        assert blocks <= 8 + 4 + 2 * 2 * 12
    for i, parts in said.items():
        assert_says(parts, truth[i])
