"""The text control: what the first thinking token alone tells, as words, without any hidden state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.probe.cases import make_cases
from refork_methods.probe.fit import FirstTokenProbe, FittedProbe
from refork_methods.probe.folds import Fitted, fit_linear, fold_of, scaled
from refork_methods.probe.shuffled import refitted

#: Different first tokens that are told apart, the commonest ones; the rest are one kind.
KINDS: Final = 2000


def text_control(
    first_tokens: Sequence[str],
    y: Sequence[int] | NDArray[Any],
    *,
    prompts: Sequence[Hashable] | None = None,
    probe: FirstTokenProbe | None = None,
    counts: tuple[Sequence[int], Sequence[int]] | None = None,
) -> FittedProbe:
    """The probe's own protocol on TF-IDF of the first emitted thinking token, in place of hidden states.

    A text is one token, so TF-IDF is an indicator of which one. Where all rows share one first token the
    AUROC is 0.5 exactly. ``counts`` are as in :meth:`FirstTokenProbe.fit`. The ceiling is that of a reader of
    prompt and token, who sees more. ``linear`` of the result is in units of the indicators, which are fitted
    anew in every fold.

    Raises: BadInput for lengths that differ or fewer than five examples of a class.
    Source: arXiv:2606.25013.
    """
    plan = probe or FirstTokenProbe("first_thinking")
    if len(first_tokens) != len(y):
        raise BadInput(f"{len(first_tokens)} first tokens for {len(y)} labels", where="text control")
    owners = range(len(y)) if prompts is None else prompts
    cases = make_cases(y, owners, first_tokens, "first_thinking", counts)
    folds = fold_of(cases.labels, cases.prompts, plan.folds, plan.seed)
    words = np.array([str(token) for token in first_tokens], dtype=object)
    scores = np.zeros(len(cases))
    for fold in np.unique(folds):
        test = folds == fold
        seen, asked = _tf_idf(words[~test], words[test])
        scores[test] = fit_linear(seen, cases.labels[~test], plan.recipe, plan.seed).scores(asked)
    seen, _ = _tf_idf(words, words[:1])
    linear: Fitted = fit_linear(seen, cases.labels, plan.recipe, plan.seed)

    def refit(labels: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.zeros(labels.shape)
        for fold in np.unique(folds):
            test = folds == fold
            seen, asked = _tf_idf(words[~test], words[test])
            part = scaled(seen, plan.recipe, plan.seed)
            found[:, test] = refitted(part, labels[:, ~test], asked, plan.recipe)
        return found

    return FittedProbe(plan, linear, cases, folds, scores, refit)


def _tf_idf(train: NDArray[Any], test: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    # The whole text is one word, be it white space or a stop word to the usual analyser.
    vectoriser = TfidfVectorizer(analyzer=lambda text: [text], max_features=KINDS)
    seen = vectoriser.fit_transform(train)
    return seen.toarray(), vectoriser.transform(test).toarray()
