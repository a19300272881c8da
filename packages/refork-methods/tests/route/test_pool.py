from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.chat import ScriptedChat
from refork.errors import BadInput, CannotDo
from refork.policies.base import Cost, Sampling
from refork.policies.open import open_policy
from refork_methods.route.pool import Bill, Price, Worker, WorkerPool, read_pool

ABC = WorkerPool.of("a", "b", "c")
ASKED = [{"role": "user", "content": "well"}]


def test_a_pool_of_one_is_refused():
    for names in ([], ["a"]):
        with pytest.raises(BadInput, match="nothing to choose"):
            WorkerPool.of(*names)


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""]])
def test_names_are_distinct_and_not_empty(names):
    with pytest.raises(BadInput, match="distinct"):
        WorkerPool.of(*names)


def test_opt_outs_are_known_workers_and_leave_one():
    with pytest.raises(BadInput, match="'d' opted out"):
        WorkerPool(ABC.workers, frozenset({"d"}))
    with pytest.raises(BadInput, match="every worker has opted out"):
        ABC.without("a", "b", "c")
    with pytest.raises(BadInput, match="no worker 'd'"):
        ABC.without("d")
    assert ABC.without("b").open == ("a", "c")
    assert ABC.without("b").without("a").open == ("c",)
    assert ABC.without("b").mask.tolist() == [True, False, True]


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), st.sampled_from(["a", "b", "c"]))
def test_an_opt_out_renormalises_over_the_rest(weights, gone):
    p = np.array(weights) / sum(weights)
    kept = ABC.without(gone).renormalised(p)
    where = ABC.index(gone)
    assert kept[where] == 0
    assert kept.sum() == pytest.approx(1)
    rest = [i for i in range(3) if i != where]
    np.testing.assert_allclose(kept[rest], p[rest] / p[rest].sum())


def test_probabilities_that_make_no_sense_are_refused():
    for bad, why in (([0.5, 0.5], "for 3 workers"), ([np.nan, 1, 0], "finite"), ([-1, 1, 1], "0 or more")):
        with pytest.raises(BadInput, match=why):
            ABC.renormalised(np.array(bad))
    with pytest.raises(BadInput, match="opted out"):
        ABC.without("a").renormalised(np.array([1.0, 0, 0]))


def test_an_opted_out_worker_is_never_called():
    chats = {name: ScriptedChat(lambda m, name=name: name, name) for name in "ab"}
    pool = WorkerPool(tuple(Worker(name, chat=chat) for name, chat in chats.items())).without("a")
    assert pool.call("b", ASKED).text == "b"
    with pytest.raises(CannotDo, match="opted out"):
        pool.call("a", ASKED)
    assert chats["a"].asked == []


def test_a_worker_is_a_policy_a_chat_model_or_only_a_name():
    pool = WorkerPool((Worker("coin", open_policy("scripted:greeter")), Worker("named")))
    assert pool.call("coin", ASKED).text in ("Hello, how are you?", "Hello there.", "Good morning.")
    with pytest.raises(CannotDo, match="neither a policy nor a chat model"):
        pool.call("named", ASKED)
    with pytest.raises(BadInput, match="no worker"):
        pool.call("other", ASKED)


def test_the_worker_s_settings_are_used():
    worker = Worker("g", open_policy("scripted:greeter"), settings=Sampling(max_tokens=1))
    assert WorkerPool((worker, Worker("b"))).call("g", ASKED).finish == "length"


def test_an_unknown_price_is_unknown_and_never_nothing():
    used = Cost(tokens_in=2_000_000, tokens_out=1_000_000)
    assert Price(1.0, 4.0, 0.5).of(used) == 6.5
    assert Price(0, 0, 0).of(Cost()) == 0
    assert Price(1.0, 4.0).of(used) is None
    assert Price(1.0, 4.0, 0.5).of(Cost(tokens_in=1)) is None
    assert Worker("w").bill(used) is None
    assert Worker("w", price=Price(1, 1, 1)).bill(Cost(money=7.0)) == 7.0
    bill = Bill.of([1.0, None, 0.5, None])
    assert (bill.known, bill.unknown, bill.total) == (1.5, 2, None)
    assert Bill.of([1.0, 0.0]).total == 1.0
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(BadInput, match="finite"):
            Price(bad)


def test_random_sub_pools_are_seeded_and_of_their_size():
    four = WorkerPool.of("a", "b", "c", "d").without("d")
    pools = [four.subset(np.random.default_rng(seed), 2) for seed in range(60)]
    assert all(len(pool.open) == 2 and "d" in pool.opted_out for pool in pools)
    assert pools[5] == four.subset(np.random.default_rng(5), 2)
    # Three sub-pools are equally likely: that one of them stays away 60 times happens once in 10^10.
    assert {pool.open for pool in pools} == {("a", "b"), ("a", "c"), ("b", "c")}
    for size in (0, 4):
        with pytest.raises(BadInput, match="sub-pool"):
            four.subset(np.random.default_rng(0), size)


FILE = """
opted_out = ["large"]
[[worker]]
name = "small"
policy = "scripted:coin"
price = { million_in = 0.1, million_out = 0.4, call = 0 }
settings = { temperature = 0.5 }
[[worker]]
name = "large"
policy = "scripted:greeter"
[[worker]]
name = "named"
"""


def test_a_pool_file_opens_only_who_may_be_called(tmp_path):
    opened = []

    def opener(spec):
        opened.append(spec)
        return open_policy(spec)

    file = tmp_path / "pool.toml"
    file.write_text(FILE)
    pool = read_pool(file, opener)
    assert opened == ["scripted:coin"]
    assert pool.open == ("small", "named")
    assert pool["small"].price == Price(0.1, 0.4, 0)
    assert pool["large"].price is None
    assert pool["small"].settings == Sampling(temperature=0.5)
    assert pool["large"].policy is None
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[worker]]\nname = 'a'", "nothing to choose"),
        ("workers = 1", "workers: Extra inputs"),
        ("worker = 1", "worker: Input should be a valid list"),
        ("[[worker]]\nname = 3", "worker.0.name: Input should be a valid string"),
        ("[[worker]]\nname = 'a'\nprice = 3", "worker.0.price"),
        ("[[worker]]\nname = 'a'\nprice = {input = 3}", "worker.0.price.input: Extra"),
        (
            "[[worker]]\nname = 'a'\nprice = {call = 'x'}",
            "worker.0.price.call: Input should be a valid number",
        ),
        ("[[worker]]\nname = 'a'\nsettings = {heat = 1}", "heat"),
        ("= 3", "not TOML"),
    ],
)
def test_pool_files_that_make_no_sense_are_refused(tmp_path, text, why):
    file = tmp_path / "pool.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=why):
        read_pool(file)


def test_a_pool_file_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_pool(tmp_path / "none.toml")
