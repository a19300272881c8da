import json

import numpy as np
import pytest

from refork.errors import BadInput, Mismatch
from refork.policies.base import Sampling
from refork_methods.speculate import data as module
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.data import (
    Cached,
    Example,
    Prompt,
    Recomputed,
    answers,
    data_digest,
    feature_bytes,
    own_settings,
    parse_prompt,
    read_prompts,
)
from support.models import CONTEXT, tiny_policy

SHORT = Sampling(max_tokens=6)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def said(example):
    return example.tokens[example.supervised].tolist()


def test_three_kinds_of_lines(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"text": "once"},
        {"turns": ["a", "b"]},
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "not kept"},
                {"role": "user", "content": "v"},
                {"role": "assistant", "content": "nor this"},
            ]
        },
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    text, turns, messages = read_prompts(path)
    assert text == Prompt(text="once")
    assert [stage[0]["content"] for stage in turns.stages] == ["a", "b"]
    assert [[m["content"] for m in stage] for stage in messages.stages] == [["s", "u"], ["v"]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": 3},
        {"text": "a", "turns": ["b"]},
        {"turns": "a"},
        {"turns": [1]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "assistant", "content": "x"}]},
    ],
)
def test_lines_that_are_no_prompts(body):
    with pytest.raises(BadInput, match="line 3"):
        parse_prompt(body, "line 3")


def test_separators_inside_a_string_end_no_line(tmp_path):
    path = tmp_path / "prompts.jsonl"
    said = "a\u2028b\u0085c"
    path.write_bytes("\r\n".join([json.dumps({"text": said}, ensure_ascii=False)] * 2).encode())
    assert [prompt.text for prompt in read_prompts(path)] == [said, said]


def test_no_prompts(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for path in (empty, tmp_path / "missing.jsonl"):
        with pytest.raises(BadInput):
            read_prompts(path)


def test_the_target_answers_itself(policy):
    made = answers(policy, [Prompt(text="abc")], SHORT, samples=3)
    assert len(made.examples) == 3
    opening = policy.encode("abc")
    for example in made.examples:
        assert np.array_equal(example.tokens[: len(opening)], opening)
        assert not example.supervised[: len(opening)].any()
        assert example.supervised[len(opening) :].all()
        assert 1 <= len(said(example)) <= 6
    assert len({tuple(said(e)) for e in made.examples}) > 1


def test_turns_are_answered_in_turn(policy):
    stages = ({"role": "user", "content": "a"},), ({"role": "user", "content": "b"},)
    (example,) = answers(policy, [Prompt(stages=stages)], SHORT).examples
    edges = np.flatnonzero(np.diff(example.supervised.astype(int)))
    assert len(edges) == 3
    # The second question stands behind the first answer as it was said.
    assert policy.decode(example.tokens[edges[1] + 1 : edges[2] + 1]).strip() == "b"


def test_greedy_answers_are_the_targets_own(policy):
    greedy = SHORT.but(temperature=0.0, ignore_eos=True)
    (example,) = answers(policy, [Prompt(text="abc")], greedy).examples
    distributions = policy.next_logprobs([example.tokens[:n] for n in range(3, len(example.tokens))])
    assert (
        said(example)[1:]
        == [int(distribution.argmax()) for distribution in distributions][len(example.tokens) - 3 - 5 :]
    )


def test_answers_do_not_depend_on_where_a_call_stopped(policy, tmp_path, monkeypatch):
    prompts = [Prompt(text=f"ab{i}") for i in range(5)]
    straight = answers(policy, prompts, SHORT, samples=2)
    monkeypatch.setattr(module, "_CHUNK", 3)
    path = tmp_path / "answers.jsonl"
    whole = answers(policy, prompts, SHORT, samples=2, path=path)
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:9])
    again = answers(policy, prompts, SHORT, samples=2, path=path)
    assert path.read_text() == text
    for other in (whole, again):
        assert data_digest(other.examples) == data_digest(straight.examples)


def test_the_digest_of_data_tells_greedy_answers_from_drawn_ones():
    tokens, mask = np.arange(9, dtype=np.int32), np.ones(9, dtype=bool)
    drawn, greedy = Example(tokens, mask), Example(tokens, mask, greedy=True)
    sets = [[drawn] * 2, [greedy] * 2, [drawn, greedy], [greedy, drawn], [drawn] * 3]
    assert len({data_digest(examples) for examples in sets}) == len(sets)
    # Data without greedy answers keeps the digest it always had: half-done trainings go on.
    assert data_digest([drawn]) == "bc6bc1386eef168c27c93a16ae5566b5"


@pytest.mark.parametrize("kept", [0, 9, -1])
def test_a_header_that_a_crash_cut_short_is_written_anew(policy, tmp_path, kept):
    path = tmp_path / "answers.jsonl"
    prompts = [Prompt(text="ab")]
    answers(policy, prompts, SHORT, path=path)
    text = path.read_text()
    path.write_text(text.partition("\n")[0][: kept or None] if kept else "")
    answers(policy, prompts, SHORT, path=path)
    assert path.read_text() == text
    # What is not ours is not written over.
    path.write_text("notes of mine")
    with pytest.raises(Mismatch):
        answers(policy, prompts, SHORT, path=path)
    assert path.read_text() == "notes of mine"


def test_other_answers_are_not_mixed(policy, tmp_path):
    path = tmp_path / "answers.jsonl"
    prompts = [Prompt(text="ab")]
    answers(policy, prompts, SHORT, path=path)
    for changed in ({"seed": 1}, {"samples": 2}):
        with pytest.raises(Mismatch, match=next(iter(changed))):
            answers(policy, prompts, SHORT, path=path, **changed)
    with pytest.raises(Mismatch, match="target"):
        answers(tiny_policy(seed=1), prompts, SHORT, path=path)


def test_a_prompt_that_fills_the_context_is_counted(policy):
    made = answers(policy, [Prompt(text="x" * CONTEXT), Prompt(text="ab")], SHORT)
    assert made.too_long == 1
    assert len(made.examples) == 1


def test_own_settings_are_the_makers(policy):
    model = policy.decoder.backbone.model
    before = model.generation_config
    assert own_settings(policy, 9) == Sampling(max_tokens=9)
    try:
        changed = type(before)(do_sample=True, temperature=0.6, top_k=20, top_p=0.95)
        model.generation_config = changed
        assert own_settings(policy, 9) == Sampling(temperature=0.6, top_k=20, top_p=0.95, max_tokens=9)
    finally:
        model.generation_config = before


def test_masks_must_fit():
    with pytest.raises(BadInput):
        Example(np.zeros(3, dtype=np.int32), np.zeros(2, dtype=bool))


# -- features -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def examples(policy):
    return answers(policy, [Prompt(text=f"ab{i}") for i in range(6)], SHORT).examples


def test_features_are_the_models_hidden_states(policy, examples):
    import torch

    config = draft_config(policy)
    (found,) = Recomputed(policy, examples, config).of([2])
    with torch.no_grad():
        ids = torch.from_numpy(examples[2].tokens.astype(np.int64))[None]
        out = policy.model(input_ids=ids, output_hidden_states=True)
    wanted = torch.stack([out.hidden_states[n][0] for n in (*config.target_layers, 2)], 1)
    assert np.allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize(("precision", "gap"), [("float32", 1e-5), ("float16", 1e-2)])
def test_cached_features_are_the_recomputed_ones(policy, examples, tmp_path, precision, gap, monkeypatch):
    config = draft_config(policy)
    fresh = Recomputed(policy, examples, config).of(range(6))
    kept = Cached(policy, examples, config, tmp_path, precision)
    first = kept.of([4, 1])
    asked, own = [], Recomputed.of
    monkeypatch.setattr(Recomputed, "of", lambda self, n: asked.extend(n) or own(self, n))
    again = Cached(policy, examples, config, tmp_path, precision).of([1, 2, 4])
    assert asked == [2], "what is on disk is not computed again"
    for one, other in zip([*first, *again], [fresh[n] for n in (4, 1, 1, 2, 4)], strict=True):
        assert one.dtype == np.float32
        assert np.allclose(one, other, atol=gap)
    assert np.array_equal(first[0], again[2])
    size = feature_bytes(sum(len(examples[n].tokens) for n in (1, 2, 4)), config, precision)
    files = list(tmp_path.rglob("*.npy"))
    assert 0 < sum(file.stat().st_size for file in files) - size < 3 * 200
    files[0].write_bytes(b"torn")
    asked.clear()
    kept.of([1, 2, 4])
    assert len(asked) == 1, "a damaged file is written anew"
    # Other examples, layers or weights are never met.
    Cached(policy, examples[:3], config, tmp_path, precision).of([1])
    Cached(policy, examples, config.but(target_layers=(1,)), tmp_path, precision).of([1])
    assert len(list(tmp_path.iterdir())) == 3


def test_states_too_large_for_half_precision(policy, examples, tmp_path, monkeypatch):
    big = Recomputed.of
    monkeypatch.setattr(Recomputed, "of", lambda self, n: [1e6 * s for s in big(self, n)])
    with pytest.raises(BadInput, match="float16"):
        Cached(policy, examples, draft_config(policy), tmp_path, "float16").of([0])
