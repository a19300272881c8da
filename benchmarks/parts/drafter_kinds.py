"""The drafters of ``benchmarks/drafter.py``: trained once, then kept beside the organisms.

One target, the organism ``phrases``; one text, its own answers; one backbone of two layers, the same initial
weights, anchors and order of the text for all kinds of one seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refork.plain import content_hash
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.settings import home
from refork_methods import speculate
from refork_methods.speculate.checkpoint import CONFIG, load_draft
from refork_methods.speculate.config import DraftKind, draft_config
from refork_methods.speculate.context import Proposer, as_proposer
from refork_methods.speculate.data import Answered, Prompt, answers
from refork_methods.speculate.loss import CODE_DECAY, LossWeights
from refork_methods.speculate.train import DraftTraining, train_draft
from refork_testbed.models import build
from refork_testbed.models.recipes.phrases import ASK

ANSWERS, MAX_TOKENS, LAYERS, RANK = 1_000, 96, 2, 16
#: Updates: a short training, in which attention to the context is half learned, and a longer one.
SHORT, LONG = 200, 480
#: Sources that decide what is trained; those of decoding, scheduling and other layouts do not.
_SOURCES = (
    *("anchors", "attention", "config", "context", "data", "eagle", "heads", "lessons", "loss", "model"),
    "train",
)


@dataclass(frozen=True)
class Kind:
    """A drafter to compare: its config beside the shared one, and its loss."""

    name: str
    kind: DraftKind
    changes: dict[str, Any]
    terms: LossWeights


KINDS = (
    Kind("dspark", "dspark", {"rank": RANK, "layers": LAYERS}, LossWeights()),
    Kind("parallel", "dspark", {"head": "none", "layers": LAYERS}, LossWeights()),
    Kind("dflash", "dflash", {"layers": LAYERS}, LossWeights(1.0, 0.0, 0.0)),
    Kind("eagle", "eagle", {}, LossWeights()),
)


def target() -> LocalPolicy:
    """The organism, built now unless it is there."""
    return LocalPolicy.load(str(build("phrases")))


def text(policy: LocalPolicy) -> Answered:
    """What the target says when it is asked, kept in a file."""
    path = _home() / f"answers-{str(policy.card.weights)[:12]}.jsonl"
    prompt = Prompt(stages=(({"role": "user", "content": ASK},),))
    return answers(policy, [prompt], Sampling(max_tokens=MAX_TOKENS + 1), samples=ANSWERS, seed=1, path=path)


def trained(policy: LocalPolicy, kind: Kind, steps: int, seed: int) -> tuple[Proposer, bool]:
    """The drafter, and whether it had to be trained now; an interrupted training goes on."""
    # A word that the target never says; its embedding fills the slots that are to be predicted.
    mask = int(policy.codec.tokenizer.unk_token_id)
    config = draft_config(policy, kind.kind, mask_token=mask, **kind.changes)
    settings = DraftTraining(
        steps=steps, batch=24, rows=24, anchors=10, learning_rate=1e-3, decay=CODE_DECAY, terms=kind.terms,
        checkpoint=steps, measure=steps, held_out=0.05, seed=seed,
    )  # fmt: skip
    made_of = content_hash([config.to_json(), asdict(settings), ANSWERS, MAX_TOKENS, _sources()])
    folder = _home() / f"{kind.name}-{steps}-{seed}-{made_of[:12]}"
    fresh = not (folder / CONFIG).is_file()
    if fresh:
        train_draft(policy, text(policy).examples, config, settings, out=folder)
    return as_proposer(load_draft(folder, policy)), fresh


def _home() -> Path:
    place = home() / "drafters" / "phrases"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _sources() -> str:
    """Digest of the modules that decide what is trained."""
    here = Path(str(speculate.__file__)).parent
    mixed = hashlib.sha256()
    for name in _SOURCES:
        mixed.update((here / f"{name}.py").read_bytes())
    return mixed.hexdigest()
