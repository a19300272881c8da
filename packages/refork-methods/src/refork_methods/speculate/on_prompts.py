"""From a file of prompts to a trained drafter in a folder, which says what it would cost before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.speculate.config import DraftConfig
from refork_methods.speculate.data import Prompt, answers, own_settings
from refork_methods.speculate.features import feature_bytes
from refork_methods.speculate.model import build_draft
from refork_methods.speculate.train import DraftTraining, train_draft

ANSWERS: Final = "answers.jsonl"
GREEDY: Final = "answers-greedy.jsonl"


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do: the answers of the target, the drafter's size, what cached features take.

    ``tokens`` are those of the answers, an upper bound, since they may end early. ``features``
    in bytes (None: not kept) is an estimate: a chat template adds tokens that are not counted.
    """

    conversations: int
    tokens: int
    parameters: int
    features: int | None
    settings: Sampling

    def to_json(self) -> Json:
        """Plain figures."""
        return {
            "conversations": self.conversations,
            "tokens_at_most": self.tokens,
            "parameters": self.parameters,
            "feature_bytes": self.features,
            "sampling": self.settings.to_json(),
        }


def plan_on_prompts(
    target: LocalPolicy,
    prompts: Sequence[Prompt],
    config: DraftConfig,
    training: DraftTraining,
    law: Sampling | None = None,
    samples: int = 1,
    *,
    greedy: bool = False,
) -> Plan:
    """What :func:`train_on_prompts` would do; nothing is sampled."""
    settings = law or own_settings(target)
    samples += greedy
    spoken = sum(prompt.answers for prompt in prompts) * samples * settings.max_tokens
    given = sum(len(target.encode(prompt.words)) for prompt in prompts) * samples
    size = sum(part.numel() for part in build_draft(config, target).parameters())
    held = None
    if training.features == "cache":
        held = feature_bytes(spoken + given, config, training.precision)
    return Plan(len(prompts) * samples, spoken, size, held, settings)


def train_on_prompts(
    target: LocalPolicy,
    prompts: Sequence[Prompt],
    config: DraftConfig,
    training: DraftTraining,
    out: Path,
    law: Sampling | None = None,
    *,
    samples: int = 1,
    greedy: bool = False,
    resume: bool = True,
    progress: Progress = silent,
) -> Json:
    """Let the target answer prompts, train a drafter on the answers, and report; the same call again resumes.

    ``greedy``: every prompt is answered once more at temperature 0. Greedy text repeats itself as drawn text
    does not, and a drafter that never read it drafts it badly.

    Raises: as :func:`answers` and :func:`train_draft`.
    """
    seed, settings = training.seed, law or own_settings(target)
    parts = [
        answers(target, prompts, settings, samples=samples, seed=seed, path=out / ANSWERS, progress=progress)
    ]
    if greedy:
        cold = settings.but(temperature=0.0)
        parts.append(answers(target, prompts, cold, seed=seed, path=out / GREEDY, progress=progress))
    examples = [example for part in parts for example in part.examples]
    trained = train_draft(target, examples, config, training, out=out, resume=resume, progress=progress)
    tokens = sum(int(example.supervised.sum()) for example in examples)
    said = {"sequences": len(examples), "tokens": tokens, "too_long": sum(part.too_long for part in parts)}
    return trained.to_json() | {"data": said}
