import json

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo, Mismatch, WrongWeights
from refork.policies.open import open_policy
from refork.stats import mean_interval
from refork_methods.route import Outcome, OutcomeTable, WorkerPool
from refork_methods.route.backbone import RouterBackbone, StateFormat
from refork_methods.route.decision import head_chooser
from refork_methods.route.head import HeadCard, SelectionHead, load_head, measured, query_digest, save_head
from refork_methods.route.runs import as_lines, raw_lines
from support.models import tiny_policy

NAMES = ("a", "b", "c")
TALK = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi\nthere"}]


def head(seed=0, **more):
    return SelectionHead(np.random.default_rng(seed).normal(size=(3, 5)), NAMES, **more)


STATES = np.random.default_rng(1).normal(size=(20, 5))


@pytest.fixture(scope="module")
def backbone():
    return RouterBackbone(tiny_policy())


def test_probabilities_are_the_softmax_and_choice_their_argmax():
    raw = np.exp(STATES @ head().weights.T)
    assert np.allclose(head().probabilities(STATES), raw / raw.sum(axis=1, keepdims=True))
    assert (head().choose(STATES) == raw.argmax(axis=1)).all()
    flat = SelectionHead.zero(NAMES, 5)
    assert np.allclose(flat.probabilities(STATES), 1 / 3)
    assert not flat.choose(STATES).any()  # the first of equals


def test_an_opted_out_worker_is_renormalised_away_and_never_chosen():
    full, some = head().probabilities(STATES), head().probabilities(STATES, {"a", "c"})
    assert (some[:, 1] == 0).all()
    assert np.allclose(some[:, [0, 2]], full[:, [0, 2]] / full[:, [0, 2]].sum(axis=1, keepdims=True))
    assert 1 not in head().choose(STATES, {"a", "c"})
    assert 1 in head().choose(STATES)
    with pytest.raises(CannotDo, match="opted out"):
        head().choose(STATES, ())
    with pytest.raises(BadInput, match="never fitted on worker 'new'"):
        head().choose(STATES, {"a", "new"})


def test_roles_are_a_softmax_of_their_own():
    rows = np.random.default_rng(2).normal(size=(6, 5))
    both = SelectionHead(rows, NAMES, ("worker", "thinker", "verifier"))
    assert np.allclose(both.probabilities(STATES), SelectionHead(rows[:3], NAMES).probabilities(STATES))
    assert np.allclose(both.role_probabilities(STATES).sum(axis=1), 1)
    with pytest.raises(CannotDo, match="no roles"):
        head().role_probabilities(STATES)


def test_raw_lines():
    calls = [{"function": {"name": "f", "arguments": "{}"}}]
    talk = [*TALK, {"role": "assistant", "content": None, "tool_calls": calls}]
    parts = {"role": "tool", "content": [{"type": "text", "text": "4"}, {"type": "image"}]}
    assert raw_lines([*talk, parts]).split("\n") == [
        "user: hello", "assistant: hi", "there", "assistant: ",
        '[{"function": {"arguments": "{}", "name": "f"}}]', "tool: 4",
    ]  # fmt: skip
    assert as_lines("what?") == "user: what?"
    assert as_lines("system: be brief\nuser: what?") == "system: be brief\nuser: what?"
    with pytest.raises(BadInput, match="no message"):
        raw_lines([])
    with pytest.raises(BadInput, match="no role"):
        raw_lines([{"content": "x"}])


def test_the_state_is_that_of_the_last_token_but_one(backbone):
    other = [{"role": "user", "content": "a longer question"}]
    found = backbone.states([TALK, other, raw_lines(TALK)])
    ids = backbone.policy.encode(raw_lines(TALK))
    [whole] = backbone.policy.hidden_states([ids], (-1,))
    assert np.allclose(found[0], whole[0, -2], atol=1e-6)
    assert np.array_equal(found[0], found[2])
    assert not np.allclose(found[0], found[1])
    short = RouterBackbone(backbone.policy, window=3)
    assert short.tokens(TALK).tolist() == ids[-3:].tolist()


def test_what_cannot_be_read_is_refused(backbone):
    with pytest.raises(CannotDo, match="hidden states need a local model"):
        RouterBackbone(open_policy("scripted:coin"))
    with pytest.raises(BadInput, match="no transcript"):
        backbone.states([])
    with pytest.raises(BadInput, match="has no token -40"):
        RouterBackbone(backbone.policy, token_index=-40).tokens(TALK)
    with pytest.raises(CannotDo, match="not a text"):
        RouterBackbone(backbone.policy, rendering="chat").tokens("user: hello")
    with pytest.raises(BadInput, match="leave no room"):
        backbone.states(["x" * 200])
    for wrong in ({"rendering": "html"}, {"token_index": 0}, {"window": 1}):
        with pytest.raises(BadInput):
            StateFormat(**wrong)


def test_a_head_serves_only_the_states_it_was_fitted_on(backbone):
    mine = SelectionHead.zero(NAMES, 32).on(backbone)
    mine.require(backbone)
    with pytest.raises(Mismatch, match="rendering \\(fitted 'raw', here 'chat'\\)"):
        mine.require(RouterBackbone(backbone.policy, rendering="chat"))
    with pytest.raises(Mismatch, match="token_index"):
        mine.require(RouterBackbone(backbone.policy, token_index=-1))
    with pytest.raises(WrongWeights):
        mine.require(RouterBackbone(tiny_policy(seed=1)))
    with pytest.raises(Mismatch, match="features"):
        SelectionHead.zero(NAMES, 32).require(backbone)


def test_a_head_on_disk(tmp_path, backbone):
    adapter = backbone.adapter()
    rng = np.random.default_rng(0)
    made = SelectionHead(rng.normal(size=(3, 32)), NAMES).on(backbone)
    made = made.with_offsets(tuple(adapter.counts), 0.01 * rng.normal(size=adapter.count))
    card = HeadCard(NAMES, queries=(query_digest("t1#0"),), fit={"tau": 0.2}, backbone_name="tiny")
    written = save_head(tmp_path, made, card)
    again, told = load_head(tmp_path)
    assert told == written
    assert again.digest == made.digest == written.digest
    assert (again.workers, again.format, again.matrices) == (made.workers, made.format, made.matrices)
    again.require(backbone)
    told.refuse_leaks(["t2"])
    with pytest.raises(BadInput, match="were fitted on"):
        told.refuse_leaks(["t2", "t1#3"])  # another turn of a fitted task

    file = tmp_path / "card.json"
    body = json.loads(file.read_text())
    body["format"]["rendering"] = "chat"
    file.write_text(json.dumps(body))
    with pytest.raises(Mismatch, match="format"):
        load_head(tmp_path)
    save_head(tmp_path, made.with_weights(made.weights + 1), card)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"digest": made.digest}))
    with pytest.raises(Mismatch, match="tensors"):
        load_head(tmp_path)
    (tmp_path / "head.safetensors").write_bytes(b"nonsense")
    with pytest.raises(BadInput, match="no selection head"):
        load_head(tmp_path)
    with pytest.raises(BadInput, match="no selection head"):
        load_head(tmp_path / "nowhere")


def test_serving_a_pool_by_a_head(backbone):
    adapter = backbone.adapter()
    rng = np.random.default_rng(0)
    made = SelectionHead(rng.normal(size=(3, 32)), NAMES).on(backbone)
    pool = WorkerPool.of("c", "a", "b").without("b")
    chances = head_chooser(made, backbone, pool)(TALK)
    direct = made.probabilities(backbone.states([TALK]), {"a", "c"})[0]
    assert chances.tolist() == [direct[2], direct[0], 0.0]
    with pytest.raises(BadInput, match="never fitted"):
        head_chooser(made, backbone, WorkerPool.of("a", "new"))
    head_chooser(made, backbone, WorkerPool.of("a", "b", "new").without("new"))

    moved = made.with_offsets(tuple(adapter.counts), 0.1 * rng.normal(size=adapter.count))
    other = RouterBackbone(tiny_policy())
    served = head_chooser(moved, other, pool)(TALK)
    with backbone.moved(adapter, moved.offsets):
        inside = made.probabilities(backbone.states([TALK]), {"a", "c"})[0]
    with pytest.raises(CannotDo, match="offsets already"):
        head_chooser(moved, other, pool)
    assert np.allclose(served, [inside[2], inside[0], 0.0])
    assert not np.allclose(served, chances)
    assert np.array_equal(head_chooser(made, backbone, pool)(TALK), chances)  # and the moved one is back


def test_measured_scores_are_per_query_and_none_where_there_are_none():
    rows = [
        Outcome("q1", "a", 1.0),
        Outcome("q1", "a", 0.0, repeat=1),
        Outcome("q2", "a", 1.0),
        Outcome("q1", "b", 1.0),
    ]
    found = measured(OutcomeTable.of(rows, workers=NAMES))
    assert found["a"].estimate == 0.75
    assert (found["b"].low, found["b"].high) == (0.0, 1.0)
    assert found["c"] is None


def test_turns_of_a_task_are_measured_as_one():
    rows = [Outcome(f"t{task}#{turn}/r", "a", task / 2) for task in range(3) for turn in range(1 + 9 * task)]
    found = measured(OutcomeTable.of(rows, workers=NAMES))["a"]
    assert found == mean_interval(np.array([0.0, 0.5, 1.0]))
    alone = measured(OutcomeTable.of(rows[1:11], workers=NAMES))["a"]
    assert (alone.estimate, alone.low, alone.high) == (0.5, 0.0, 1.0)


def test_refusals():
    for rows, names in (
        (np.zeros((1, 2)), ("a",)),
        (np.zeros((2, 2)), ("a", "a")),
        (np.zeros((3, 2)), ("a", "b")),
    ):
        with pytest.raises(BadInput):
            SelectionHead(rows, names)
    with pytest.raises(BadInput, match="not finite"):
        SelectionHead(np.full((2, 2), np.nan), ("a", "b"))
    with pytest.raises(BadInput, match="width 5"):
        head().choose(np.zeros((1, 4)))
    with pytest.raises(BadInput, match="a state is not finite"):
        head().choose(np.full((1, 5), np.inf))
    with pytest.raises(BadInput, match="go together"):
        head(offsets=np.zeros(3))
