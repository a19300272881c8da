"""What the command line names, opened: a local model with and without its drafter."""

import httpx
import openai
import pytest

from refork.errors import BadInput, Mismatch
from refork.policies.load import quiet
from refork.serve import serving
from refork.serve.opening import Drafting, named, open_drafter, open_model
from refork_methods.speculate.checkpoint import save_draft
from support.drafters import gqa, knowing


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    target, place = gqa(), tmp_path_factory.mktemp("served")
    with quiet():
        target.model.save_pretrained(place / "target")
    target.codec.tokenizer.save_pretrained(place / "target")
    draft = knowing(target)
    save_draft(draft, draft.config, place / "draft")
    return place


def test_names_before_specifications():
    assert named("a-1.b=hf:x+adapter=y") == ("a-1.b", "hf:x+adapter=y")
    assert named("hf:x+adapter=y") == (None, "hf:x+adapter=y")
    assert named("runs/x=1") == (None, "runs/x=1")


def test_a_drafter_changes_how_fast_and_nothing_of_what_is_said(folders):
    plain = open_model(f"plain={folders / 'target'}", 4)
    fast = open_model(f"fast={folders / 'target'}", 4, Drafting(folders / "draft"))
    assert "(coupled, 4 tokens, always)" in fast.about
    with (
        serving({one.name: one.model for one in (plain, fast)}) as address,
        openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client,
    ):
        ask = {"prompt": "ab", "max_tokens": 24, "n": 3, "seed": 5, "logprobs": 0}
        one, two = (client.completions.create(model=name, **ask) for name in ("plain", "fast"))
        assert [c.text for c in one.choices] == [c.text for c in two.choices]
        for first, second in zip(one.choices, two.choices, strict=True):
            assert first.logprobs.token_logprobs == pytest.approx(second.logprobs.token_logprobs, abs=1e-4)
        text = httpx.get(address.replace("/v1", "/metrics")).text
    found = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line[0] != "#"}
    assert found['refork_accepted_tokens_total{model="fast"}'] > 0
    assert found['refork_tau{model="fast"}'] > 1
    assert 'refork_tau{model="plain"}' not in found


def test_what_cannot_be_opened_says_why(folders, tmp_path):
    with pytest.raises(BadInput):
        open_model(str(tmp_path), 4)
    with pytest.raises(BadInput, match="drafter"):
        open_model(str(folders / "target"), 4, Drafting(tmp_path))
    with pytest.raises((BadInput, Mismatch)):
        open_drafter(Drafting(folders / "draft"), gqa(seed=1))
