"""Checkpoints, schedules, supervised and preference training, each resumed bit for bit."""

import json
import math
import signal

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from refork.errors import BadInput, Mismatch, WrongWeights
from refork.policies.local import LocalPolicy
from refork.types import token_array
from refork_methods.train.checkpoint import latest_checkpoint, restore_checkpoint, save_checkpoint
from refork_methods.train.lora import LoraSettings, add_lora, merged
from refork_methods.train.preference import (
    Pair,
    PreferenceSettings,
    dpo_loss,
    prefer,
    reference_scores,
    single_token_loss,
)
from refork_methods.train.schedule import Schedule, adamw
from refork_methods.train.supervised import conversation_examples, walk_examples
from refork_methods.train.tracker import JsonLines, read_lines
from refork_methods.train.weighted import Weighted, WeightedSettings, fit_weighted
from support import tool_talks


def example(*tokens, learned=None):
    weights = np.array([0] + [1] * (len(tokens) - 1) if learned is None else learned, dtype=np.float32)
    return Weighted(token_array(tokens), weights)


EXAMPLES = [example(*ids) for ids in ([5, 6, 7], [9, 8, 7, 6, 5], [5, 9], [7, 7, 7, 8], [6, 5, 6], [8, 9, 5])]
PAIRS = [
    Pair(token_array([5, 6]), token_array([7, 8]), token_array([9])),
    Pair(token_array([9]), token_array([5]), token_array([6, 7, 8])),
    Pair(token_array([8, 8, 8]), token_array([6]), token_array([9])),
]


def weights(model):
    return {name: part.detach().clone() for name, part in model.named_parameters()}


def same(a, b):
    return all(torch.equal(part, weights(b)[name]) for name, part in weights(a).items())


def sft(model, steps=6, folder=None, **rest):
    settings = WeightedSettings(steps=steps, rows=3, schedule=Schedule(peak=1e-2), every=2, **rest)
    return fit_weighted(model, EXAMPLES, settings, folder=folder)


def dpo(model, steps=6, folder=None, **rest):
    settings = PreferenceSettings(steps=steps, rows=2, schedule=Schedule(peak=1e-2), every=2, **rest)
    return prefer(model, PAIRS, settings, folder=folder)


# -- schedules --------------------------------------------------------------------------------


def test_rates_by_hand():
    rates = Schedule(peak=2.0, shape="linear", warmup=2, final=0.5)
    assert [rates.rate(i, 6) for i in range(7)] == [1.0, 2.0, 2.0, 1.75, 1.5, 1.25, 1.0]
    cosine = Schedule(peak=1.0, shape="cosine")
    assert cosine.rate(0, 4) == 1.0
    assert cosine.rate(2, 4) == pytest.approx(0.5)
    assert Schedule(peak=3.0).rate(99, 4) == 3.0


@pytest.mark.parametrize("wrong", [{"peak": 0}, {"shape": "step"}, {"warmup": -1}, {"final": 2}])
def test_bad_schedules(wrong):
    with pytest.raises(BadInput):
        Schedule(**wrong)


def test_a_frozen_model_is_refused(table):
    model = table().requires_grad_(False)
    with pytest.raises(BadInput, match="no parameter"):
        adamw(model, Schedule())


# -- resume -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [sft, dpo])
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2)])
def test_a_stopped_run_ends_with_the_same_weights(tiny, tmp_path, method, lora):
    def model():
        found = LocalPolicy.load(tiny).model
        return found if lora is None else add_lora(found, lora)

    torch.manual_seed(5)
    whole = model()
    log = method(whole, folder=tmp_path / "whole")
    torch.manual_seed(5)
    stopped = model()

    class Stop(Exception):
        pass

    class Interrupt:
        def log(self, step, metrics):
            if step == 4:
                raise Stop

    settings = {"steps": 6, "rows": 3 if method is sft else 2, "schedule": Schedule(peak=1e-2), "every": 2}
    run, data, kind = (
        (fit_weighted, EXAMPLES, WeightedSettings) if method is sft else (prefer, PAIRS, PreferenceSettings)
    )
    with pytest.raises(Stop):
        run(stopped, data, kind(**settings), folder=tmp_path / "cut", tracker=Interrupt())
    assert latest_checkpoint(tmp_path / "cut").step == 4
    torch.manual_seed(6)
    resumed = model()
    again = method(resumed, folder=tmp_path / "cut")
    assert same(whole, resumed)
    assert again == log
    assert len(log) == 6


def test_other_data_does_not_resume(tiny, tmp_path):
    sft(LocalPolicy.load(tiny).model, folder=tmp_path)
    with pytest.raises(Mismatch, match="another run"):
        sft(LocalPolicy.load(tiny).model, folder=tmp_path, seed=1)


def test_checkpoints_are_whole_few_and_checked(tiny, tmp_path, table):
    model = LocalPolicy.load(tiny).model
    optimizer = adamw(model, Schedule())
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, model, optimizer, {"n": step})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000002", "00000003"]
    saved = latest_checkpoint(tmp_path)
    assert saved.position == {"n": 3}
    other = table()
    with pytest.raises(Mismatch, match="another model"):
        restore_checkpoint(saved, other, adamw(other, Schedule()))
    state = json.loads((saved.folder / "state.json").read_text())
    (saved.folder / "state.json").write_text(json.dumps(state | {"weights": "0" * 64}))
    with pytest.raises(WrongWeights):
        restore_checkpoint(latest_checkpoint(tmp_path), model, optimizer)
    for torn in ("optimizer.pt", "weights.safetensors"):
        (saved.folder / torn).write_bytes(b"torn")
        with pytest.raises(BadInput, match="cannot be read"):
            restore_checkpoint(saved, model, optimizer)
    (saved.folder / "state.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        latest_checkpoint(tmp_path)
    assert latest_checkpoint(tmp_path / "none") is None


def test_the_random_state_comes_back(tiny, tmp_path):
    model = LocalPolicy.load(tiny).model
    optimizer = adamw(model, Schedule())
    save_checkpoint(tmp_path, 1, model, optimizer, {})
    expected = torch.rand(3)
    torch.manual_seed(1)
    restore_checkpoint(latest_checkpoint(tmp_path), model, optimizer)
    assert torch.equal(torch.rand(3), expected)


# -- supervised -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [sft, dpo])
def test_accumulated_parts_make_the_step_of_the_whole_batch(tiny, method):
    found = []
    for rows in (None, 1, 2):
        model = LocalPolicy.load(tiny).model.double()
        log = method(model, steps=3, micro_rows=rows)
        found.append((log, weights(model)))
    for log, parts in found[1:]:
        for name, part in parts.items():
            torch.testing.assert_close(part, found[0][1][name], atol=1e-5, rtol=1e-4)
        assert [row["loss"] for row in log] == pytest.approx([row["loss"] for row in found[0][0]], rel=1e-4)


def test_supervision_lowers_the_loss_and_tells_the_tracker(tiny, tmp_path):
    told = JsonLines(tmp_path / "steps.jsonl")
    settings = WeightedSettings(steps=30, rows=6, schedule=Schedule(peak=1e-2))
    log = fit_weighted(LocalPolicy.load(tiny).model, EXAMPLES, settings, tracker=told)
    assert log[-1]["loss"] < 0.5 * log[0]["loss"]
    assert log[0]["learned"] == 14
    assert [row["step"] for row in read_lines(told.path)] == list(range(30))
    told.log(7, {"loss": 1.0})
    assert [row["step"] for row in read_lines(told.path)] == list(range(8)), "what came after is dropped"
    with told.path.open("a") as out:
        out.write('{"step": 8, "lo')
    assert len(read_lines(told.path)) == 8


def test_ctrl_c_lets_the_step_end_and_saves_it(tiny, tmp_path):
    class Hand:
        def log(self, step, metrics):
            if step == 2:
                signal.raise_signal(signal.SIGINT)

    settings = WeightedSettings(steps=6, rows=3, schedule=Schedule(peak=1e-2), every=0)
    with pytest.raises(KeyboardInterrupt):
        fit_weighted(LocalPolicy.load(tiny).model, EXAMPLES, settings, folder=tmp_path, tracker=Hand())
    assert latest_checkpoint(tmp_path).step == 3


def test_nothing_to_supervise_is_refused(tiny):
    model = LocalPolicy.load(tiny).model
    with pytest.raises(BadInput, match="nothing to train"):
        fit_weighted(model, [], WeightedSettings(steps=1))
    with pytest.raises(BadInput, match="sequence 0"):
        fit_weighted(model, [example(1, 2, learned=[1, 0])], WeightedSettings(steps=1))
    with pytest.raises(BadInput, match="steps"):
        WeightedSettings(steps=0)


def test_conversations_are_rendered_as_the_policy_would_see_them(counting):
    talk = [
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "then comes three"},
        {"role": "user", "content": "two three"},
        {"role": "assistant", "content": "then comes four"},
    ]
    codec = counting.codec
    (found,) = conversation_examples(codec, [talk])
    whole = codec.tokenizer.apply_chat_template(talk, tokenize=True, return_dict=False)
    assert found.tokens.tolist() == whole
    assert codec.raw(found.tokens[found.weights == 1]) == "then comes three<|end|>then comes four<|end|>"
    with pytest.raises(BadInput, match="conversation 0"):
        conversation_examples(codec, [talk[:1]])
    with pytest.raises(BadInput, match="begins with"):
        conversation_examples(codec, [talk[1:]])


DONE = {"role": "assistant", "content": [{"type": "text", "text": "A "}, {"type": "text", "text": "lamp."}]}
LOOK = '<tool_call>\n{"name": "look", "arguments": {"at": "door"}}\n</tool_call>'


@pytest.mark.parametrize("template", ["hermes", "single", "chatml", "strict", "none"])
def test_calls_and_contents_of_parts_are_learned_as_the_policy_would_write_them(template):
    made = tool_talks.codec(tool_talks.ALL[template])
    talk = [tool_talks.ASKED, tool_talks.CALLS, tool_talks.result("dark"), DONE]
    (found,) = conversation_examples(made, [talk])
    learned = made.raw(found.tokens[found.weights == 1])
    ends = "<|im_end|>" if template in ("hermes", "single", "chatml") else made.tokenizer.eos_token or ""
    assert learned == f"{LOOK}{ends}A lamp.{ends}"


def test_calls_that_a_template_writes_elsewhere_are_refused():
    moved = tool_talks.HERMES.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>agent\n{% endif %}")
    with pytest.raises(BadInput, match=r"tool calls where answers stand .*answer 0"):
        conversation_examples(tool_talks.codec(moved), [[tool_talks.ASKED, tool_talks.CALLS]])


def test_walks_are_learned_where_the_policy_spoke(node, walk):
    task, said = node("t", "task", [1, 2]), node("a", tokens=[3, 4], parent="t")
    other = node("b", tokens=[6], parent="a", keep=1)
    first, second = walk_examples([walk(task, said), walk(task, said, other, keeps=[None, 1])])
    assert first.tokens.tolist() == [1, 2, 3, 4]
    assert first.weights.tolist() == [0, 0, 1, 1]
    assert second.tokens.tolist() == [1, 2, 3, 6]
    assert second.weights.tolist() == [0, 0, 0, 1]


# -- adapters ---------------------------------------------------------------------------------


def test_an_adapter_alone_is_trained(tiny):
    base = LocalPolicy.load(tiny).model
    before = weights(base)
    model = add_lora(base, LoraSettings(rank=2))
    ids = torch.tensor([[5, 6, 7]])
    plain = LocalPolicy.load(tiny).model(ids).logits
    assert torch.equal(model(ids).logits, plain), "a fresh adapter changes nothing"
    sft(model, steps=3)
    assert not torch.equal(model(ids).logits, plain)
    frozen = {n: p for n, p in model.named_parameters() if not p.requires_grad}
    assert len(frozen) == len(before)
    for (_, now), was in zip(sorted(frozen.items()), [before[n] for n in sorted(before)], strict=True):
        assert torch.equal(now, was)
    adapted = model(ids).logits.detach()
    torch.testing.assert_close(merged(model)(ids).logits, adapted, atol=1e-5, rtol=1e-5)
    with pytest.raises(BadInput, match="already"):
        add_lora(add_lora(LocalPolicy.load(tiny).model, LoraSettings()), LoraSettings())
    with pytest.raises(BadInput, match="adapter"):
        add_lora(LocalPolicy.load(tiny).model, LoraSettings(targets=("nothing",)))
    with pytest.raises(ValidationError, match="rank"):
        LoraSettings(rank=0)


# -- preferences ------------------------------------------------------------------------------


def test_dpo_loss_by_hand():
    loss = dpo_loss(*(torch.tensor([v]) for v in (-1.0, -2.0, -1.5, -1.7)), 0.5)
    assert loss.item() == pytest.approx(-math.log(1 / (1 + math.exp(-0.5 * 0.8))))


def test_a_single_token_moves_exactly_two_logits():
    logits = torch.randn(2, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = logits.float().requires_grad_()
    margin = torch.tensor([0.3, -0.2])
    chosen, rejected = torch.tensor([1, 6]), torch.tensor([4, 0])
    single_token_loss(logits, chosen, rejected, margin, 0.7).sum().backward()
    for row in range(2):
        gap = (logits[row, chosen[row]] - logits[row, rejected[row]] - margin[row]).item()
        size = 0.7 / (1 + math.exp(0.7 * gap))
        expected = torch.zeros(7)
        expected[chosen[row]], expected[rejected[row]] = -size, size
        assert torch.equal(logits.grad[row] == 0, expected == 0)
        torch.testing.assert_close(logits.grad[row], expected)


def test_the_single_token_form_is_the_sequence_form(tiny, tmp_path):
    pairs = [
        Pair(token_array([5, 6]), token_array([8]), token_array([9])),
        Pair(token_array([7]), token_array([5]), token_array([6])),
    ]
    assert all(pair.single for pair in pairs)
    long = [Pair(p.prompt, p.chosen, p.rejected) for p in pairs]
    long.append(Pair(token_array([9]), token_array([5, 6]), token_array([7])))
    settings = PreferenceSettings(steps=1, rows=3, schedule=Schedule(peak=1e-9))
    model = LocalPolicy.load(tiny).model
    known = reference_scores(model, pairs)
    shifted = [Pair(p.prompt, p.chosen, p.rejected, (p.reference[0] - 1, p.reference[1])) for p in known]
    (one,) = prefer(model, shifted, settings, folder=tmp_path)
    with pytest.raises(Mismatch):
        prefer(model, known, settings, folder=tmp_path)
    # At the reference itself every margin is 0; here it is 1 by construction.
    assert one["margin"] == pytest.approx(1, abs=1e-4)
    assert one["loss"] == pytest.approx(math.log1p(math.exp(-0.1)), rel=1e-4)
    mixed = [*shifted, Pair(token_array([9]), token_array([5, 6]), token_array([7]))]
    (two,) = prefer(model, mixed, settings)
    assert two["margin"] == pytest.approx(2 / 3, abs=1e-4)


def test_preferences_are_learned(tiny):
    settings = PreferenceSettings(steps=20, rows=3, schedule=Schedule(peak=3e-3))
    log = prefer(LocalPolicy.load(tiny).model, PAIRS, settings)
    assert log[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert log[-1]["accuracy"] == 1
    assert log[-1]["margin"] > 2


def test_bad_pairs_are_refused(tiny):
    a, b = token_array([1]), token_array([2])
    for parts, what in (
        (([], a, b), "prompt"),
        ((a, [], b), "chosen"),
        ((a, b, []), "rejected"),
        ((a, b, b), "same tokens"),
        ((a, a, b, (math.nan, 0.0)), "finite"),
    ):
        with pytest.raises(BadInput, match=what):
            Pair(*parts)
    with pytest.raises(BadInput, match="no preference pair"):
        prefer(LocalPolicy.load(tiny).model, [], PreferenceSettings(steps=1))
    with pytest.raises(BadInput, match="beta"):
        PreferenceSettings(steps=1, beta=0)
