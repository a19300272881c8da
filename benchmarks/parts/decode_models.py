"""The target of the speed benchmarks and who drafts for it: trained here once, kept where organisms are kept.

Each lies in a folder of REFORK_HOME named by a digest of its recipe and of the target's weights, with the
recipe, the log of its training and what it took. All learn from the same texts: the target's own answers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from refork.plain import content_hash
from refork.policies.base import Sampling
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork.settings import home
from refork_methods.speculate.checkpoint import load_draft
from refork_methods.speculate.config import DraftConfig, draft_config
from refork_methods.speculate.data import Example, answers, parse_prompt
from refork_methods.speculate.model import DraftModel
from refork_methods.speculate.train import DraftTraining, train_draft
from refork_methods.train import sft
from refork_testbed.models import build, path
from refork_testbed.worlds.chronicle import chronicles

TARGET = "chronicler"
BLOCK, RANK = 11, 32
LAYERS = (1, 4, 7)
ANSWERS, ANSWER_SEED = 320, 41
#: Half of what is learned from is drawn, half is greedy: greedy text repeats itself as drawn text does not.
TEMPERATURES = (1.0, 0.0)
ASKED_SEED = 51
GIVEN = [ANSWERS, ANSWER_SEED, *TEMPERATURES]
PAD = 0
TRAINING = DraftTraining(
    steps=600, batch=16, rows=16, anchors=24, learning_rate=1.5e-3, number="bfloat16", features="cache",
    precision="float16", measure=200, checkpoint=1000, held_out=0.05,
)  # fmt: skip
#: The assistant: as many parameters of its own as the drafter, embedding included.
ASSISTANT = {"num_hidden_layers": 2, "hidden_size": 384, "intermediate_size": 1152, "num_attention_heads": 6}
ASSISTANT_TRAINING = sft.SftSettings(steps=600, rows=8, learning_rate=2e-3, warmup=20)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def target(progress: Callable[..., None] = lambda *a, **k: None) -> LocalPolicy:
    """The chronicler, built where it is not."""
    return LocalPolicy.load(str(build(TARGET, progress=progress)))


def openings(count: int, seed: int = ASKED_SEED) -> list[str]:
    """What is asked: openings of chronicles that nobody was trained on."""
    return [item.opening for item in chronicles(seed, count, sentences=1)]


def prompts(policy: LocalPolicy, asked: Sequence[str]) -> list[np.ndarray]:
    """Openings as the chat template writes them."""
    none = np.zeros(0, dtype=np.int32)
    return [policy.render([], none, [{"role": "user", "content": text}]).tokens for text in asked]


def said(policy: LocalPolicy) -> tuple[Example, ...]:
    """The target's own answers, which all drafters learn from; kept beside them."""
    asked = [parse_prompt({"turns": [text]}, "openings") for text in openings(ANSWERS, ANSWER_SEED)]
    found: list[Example] = []
    for temperature in TEMPERATURES:
        file = home() / "drafters" / f"answers-{_digest(policy, [*GIVEN[:2], temperature])}.jsonl"
        sampling = Sampling(max_tokens=224, temperature=temperature)
        found += answers(policy, asked, sampling, path=file, progress=_told).examples
    return tuple(found)


def config(policy: LocalPolicy, kind: str) -> DraftConfig:
    """One layer of the target's width that reads three layers; the parallel one is all but the heads."""
    same: dict[str, Any] = {"layers": 1, "target_layers": LAYERS, "block": BLOCK, "mask_token": PAD}
    if kind == "dspark":
        return draft_config(policy, "dspark", rank=RANK, **same)
    return draft_config(policy, "dflash", **same)


def drafter_folder(policy: LocalPolicy, kind: str) -> Path:
    """Where the drafter of a kind lies; it is trained where it is not."""
    shape = config(policy, kind)
    recipe = {"config": shape.to_json(), "training": asdict(TRAINING), "answers": GIVEN}

    def make(folder: Path) -> dict[str, Any]:
        made = train_draft(policy, said(policy), shape, TRAINING, out=folder, progress=_told)
        for part in ("features", "checkpoints"):
            shutil.rmtree(folder / part, ignore_errors=True)
        return {key: value for key, value in made.to_json().items() if key != "folder"}

    return _kept(f"{kind}-{_digest(policy, recipe)}", recipe, make)


def drafter(policy: LocalPolicy, kind: str) -> DraftModel:
    """The drafter of a kind."""
    found = load_draft(drafter_folder(policy, kind), policy)
    assert isinstance(found, DraftModel)
    return found


def assistant(policy: LocalPolicy) -> Any:
    """A small autoregressive model of the drafter's size, trained on the same answers where it is not."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    recipe = {"shape": ASSISTANT, "training": asdict(ASSISTANT_TRAINING), "answers": GIVEN}

    def make(folder: Path) -> dict[str, Any]:
        own = policy.model.config
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=own.vocab_size, num_key_value_heads=ASSISTANT["num_attention_heads"],
                max_position_embeddings=own.max_position_embeddings, tie_word_embeddings=True,
                initializer_range=0.04, bos_token_id=None, eos_token_id=own.eos_token_id,
                pad_token_id=own.pad_token_id, **ASSISTANT,
            )
        )  # fmt: skip
        data = [sft.Example(item.tokens, item.supervised) for item in said(policy)]
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            log = sft.train(model, data, ASSISTANT_TRAINING)
        with quiet():
            model.save_pretrained(folder)
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
        count = sum(p.numel() for p in model.parameters())
        return {"parameters": count, "loss": float(np.mean([row["loss"] for row in log[-20:]]))}

    place = _kept(f"assistant-{_digest(policy, recipe)}", recipe, make)
    with quiet():
        return AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()


def _digest(policy: LocalPolicy, recipe: Any) -> str:
    return content_hash([policy.card.weights, recipe])[:12]


def _kept(name: str, recipe: Any, make: Callable[[Path], dict[str, Any]]) -> Path:
    """The folder of this name, made as a whole where it is not there."""
    place = home() / "drafters" / name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{name}-") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            began = time.perf_counter()
            with threads(2):
                facts = make(made)
            facts["seconds"] = round(time.perf_counter() - began, 1)
            (made / "recipe.json").write_text(json.dumps({"recipe": recipe, "made": facts}, indent=2) + "\n")
            made.replace(place)
    return place


def _told(stage: str, done: int, total: int, **_: Any) -> None:
    if done % 50 == 0:
        print(f"  {stage}: {done} of {total}", flush=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(2)
    began = time.perf_counter()
    policy = target(_told)
    print(f"target: {path(TARGET).name}, {time.perf_counter() - began:.0f} s", flush=True)
    for kind in ("dspark", "dflash"):
        draft = drafter(policy, kind)
        count = sum(p.numel() for p in draft.parameters())
        print(f"{kind}: {count:,} parameters of its own, {time.perf_counter() - began:.0f} s", flush=True)
    model = assistant(policy)
    count = sum(p.numel() for p in model.parameters())
    print(f"assistant: {count:,} parameters, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
