"""The probe: reads from one hidden state whether the answer will be a refusal."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import to_json
from refork.settings import present_mark
from refork.stats.results import Array
from refork.types import Json
from refork_methods.probe.area import RESAMPLES, Area, area
from refork_methods.probe.cases import POSITIONS, Cases, Position, make_cases
from refork_methods.probe.folds import FOLDS, SEED, Fitted, Recipe, fit_linear, fold_of, out_of_fold
from refork_methods.probe.scores import Evaluation, evaluate
from refork_methods.probe.shuffled import SHUFFLES, Null, Refit, refit_scores

_FORMAT: Final = "refork.probe/1"


@final
@dataclass(frozen=True, slots=True)
class FirstTokenProbe:
    """What to read and how: the position, the layer, the recipe and its folds.

    ``last_prompt`` is the last token of the prompt, before anything is decoded; ``first_thinking`` is the
    first token of the thinking, after its opening marker. They are two experiments: only the second has seen
    a sampled token. Layers are numbered as ``output_hidden_states`` numbers them.

    Source: arXiv:2606.25013.
    """

    position: Position = "last_prompt"
    layer: int | Literal["raw"] = -1
    recipe: Recipe = "pca"
    folds: int = FOLDS
    seed: int = SEED

    def __post_init__(self) -> None:
        if self.position not in POSITIONS:
            raise BadInput(f"unknown position {self.position!r}", hint=" or ".join(map(repr, POSITIONS)))
        if self.recipe not in ("pca", "raw"):
            raise BadInput(f"unknown probe recipe {self.recipe!r}", hint="'pca' or 'raw'")
        if self.folds < 2:
            raise BadInput(f"{self.folds} folds cannot test what they did not train on", hint="2 or more")

    def fit(
        self,
        states: Float[Array, "rows width"],
        y: Sequence[int] | NDArray[Any],
        *,
        prompts: Sequence[Hashable] | None = None,
        first_tokens: Sequence[Hashable] | None = None,
        counts: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> FittedProbe:
        """Fit on all rows, and score each by a probe that has not seen its prompt.

        ``y``: 1 refused, 0 complied. ``prompts`` names each row's prompt (default: every row its own).
        ``first_tokens`` at ``first_thinking`` tell which rollouts of a prompt shared their state. ``counts``
        are each row's (refusals, rollouts) over all rollouts that shared what the row's reader sees, where
        the rows are a part of them; AUROC* comes from these, else from the rows.

        Raises: BadInput for states that are not finite, lengths that differ, labels other than 0 and 1, fewer
            than five examples of a class.
        """
        x = np.asarray(states)
        if x.ndim != 2 or x.shape[1] == 0 or len(x) != len(y):
            raise BadInput(f"states of shape {list(x.shape)} for {len(y)} labels", where="probe")
        if not np.isfinite(x).all():
            raise BadInput("some hidden states are NaN or infinite", where="probe")
        cases = make_cases(y, prompts, first_tokens, self.position, counts)
        folds = fold_of(cases.labels, cases.prompts, self.folds, self.seed)
        scores = out_of_fold(x, cases.labels, folds, self.recipe, self.seed)
        linear = fit_linear(x, cases.labels, self.recipe, self.seed)
        return FittedProbe(
            self, linear, cases, folds, scores, partial(refit_scores, x, folds, self.recipe, self.seed)
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class FittedProbe:
    """A fitted probe with its cases, the fold of each, and its score by a probe from outside that fold.

    ``refit`` gives such scores of other labels, by the same folds.
    """

    probe: FirstTokenProbe
    linear: Fitted
    cases: Cases
    folds: NDArray[np.int64]
    scores: NDArray[np.float64]
    refit: Refit

    def evaluate(
        self,
        groups: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        *,
        shuffles: int = SHUFFLES,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> Evaluation:
        """Out-of-fold AUROC beside AUROC*, and balanced accuracy: pooled and within ``groups``.

        ``groups`` and ``sources`` hold a name per row, such as harmful or benign and the set it came from.
        The intervals are of the AUROC, on new prompts, of the probes that gave the scores: each is fitted to
        all folds but one. Of ``shuffles`` probes refitted to shuffled labels their width comes.

        Raises: as :func:`refork_methods.probe.scores.evaluate`.
        """
        return evaluate(
            self.scores, self.cases, self.folds, groups, sources,
            refit=self.refit, shuffles=shuffles, resamples=resamples, seed=seed,
        )  # fmt: skip

    def area(self, *, shuffles: int = SHUFFLES, resamples: int = RESAMPLES, seed: int = 0) -> Area:
        """The pooled area alone, without balanced accuracy."""
        null = Null.of(self.refit, self.cases.labels, self.cases.prompts, self.folds, shuffles, seed)
        return area(self.scores, self.cases, null=null, resamples=resamples, seed=seed).area

    def save(self, file: Path, about: Json | None = None) -> None:
        """Write the probe (not the cases) as one safetensors file; ``about`` is kept beside it as JSON."""
        from safetensors.numpy import save_file

        settings = to_json(self.probe) | {"converged": self.linear.converged, "about": about or {}}
        tensors = {"weight": np.ascontiguousarray(self.linear.weight), "bias": np.array([self.linear.bias])}
        told = {"format": _FORMAT, "probe": json.dumps(settings, sort_keys=True)}
        save_file(tensors, str(file), metadata=told)


def load_probe(file: Path) -> tuple[FirstTokenProbe, Fitted, Json]:
    """A saved probe, its linear map and what was kept beside it.

    Raises: BadInput where the file is missing, or is no probe of ours.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="numpy") as opened:
            told = opened.metadata() or {}
            if present_mark(told.get("format")) != _FORMAT:
                raise BadInput("this file holds no probe", where=str(file))
            weight, bias = opened.get_tensor("weight"), opened.get_tensor("bias")
    except (OSError, SafetensorError) as error:
        raise BadInput(f"this probe cannot be read: {error}", where=str(file)) from error
    settings = json.loads(told["probe"])
    about, converged = settings.pop("about"), settings.pop("converged")
    return FirstTokenProbe(**settings), Fitted(weight, float(bias[0]), converged), about
