"""The scientist without a model: random search over designs, a rule for verdicts, a climb in the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from refork.errors import UserError
from refork.types import Json
from refork_methods.theory.discriminability import discriminability
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.grammar import Form, Grammar
from refork_methods.theory.metrics import pearson
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.scientist import (
    Candidate,
    Designed,
    Fault,
    Judged,
    Proposed,
    Revised,
    Ruled,
    View,
)
from refork_methods.theory.search.spec import TheorySpec
from refork_methods.theory.search.statistic import Agreement, Named
from refork_methods.theory.simulate import predicted_rates

#: Random designs compared for each proposal, and simulated runs a side behind a comparison.
DESIGNS: Final = 12
RUNS: Final = 100
#: Correlation with people's rates from which a theory has the order of choices right.
ORDERED: Final = 0.95
#: Share of tries that leave the neighbourhood of the best.
LEAPS: Final = 0.25
#: Differences of rates that count as none.
_ALIKE: Final = 0.02


@final
class ScriptedScientist:
    """Searches the grammar of the domain. Every answer is a function of the view.

    Designs: of random ones, the one with the greatest sequence divergence between the two theories.
    Verdict: the theory with the greater loss goes; its model alone is revised where its rates go with
    people's (r of 0.95 or more), and so only their strength is wrong. Successors: neighbours of the best so
    far in the grammar, and now and then a form from anywhere.

    Source: arXiv:2606.26448 has models in these roles; the scripted ones are ours.
    """

    @property
    def name(self) -> str:
        """With its constants."""
        return f"scripted: {DESIGNS} designs, {RUNS} runs, r {ORDERED:g}, leaps {LEAPS:g}"

    def transcript(self) -> list[Json]:
        """Nothing: it asks nobody."""
        return []

    def propose(self, view: View, side: int, refused: Sequence[str]) -> Proposed:
        """The most telling of some random designs, or of those that are on offer."""
        mine, other = (view.chooser(view.slots[at]) for at in (side - 1, 2 - side))
        rng = np.random.default_rng(view.key)
        made = _designs(view, rng)
        if len(made) <= (len(refused) if view.offers is not None else 0):
            return Fault("no design is left")
        seed = int(rng.integers(2**31))
        apart = [discriminability(mine, other, one, seed, runs=RUNS) for one in made]
        # Designs on offer stay the same from try to try: then the next best one.
        place = len(refused) if view.offers is not None else 0
        best = int(np.argsort(-np.asarray(apart), kind="stable")[place])
        rates = [predicted_rates(one, made[best], view.settings.draws, seed) for one in (mine, other)]
        gap = rates[0] - rates[1]
        sides = np.where(np.abs(gap) > _ALIKE, np.sign(gap), 0.0)
        statistics: list[Agreement | Named] = []
        if sides.any():
            statistics.append(
                Agreement(kind="agreement", name=f"{mine.name} over {other.name}", sides=sides.tolist())
            )
        statistics += [Named(kind="lag_one"), Named(kind="switch_rate"), Named(kind="share_of_b")]
        why = f"sequence divergence {apart[best]:.4f} nats, the greatest of {len(made)} designs"
        return Designed(made[best], tuple(statistics[: view.settings.statistics]), why)

    def judge(self, view: View) -> Ruled:
        """The greater loss loses."""
        one, other = (view.losses[label] for label in view.slots)
        target = 1 if one > other else 2
        loser = view.slots[target - 1]
        r = _correlation(view, loser)
        shown = "-" if r is None else f"{r:.3f}"
        said = f"loss {view.losses[loser]:.4f} against {min(one, other):.4f}, r {shown}"
        # Right in order and still far off: the weights are right, and the strength is not.
        if r is not None and r >= ORDERED and _revisions(view, loser):
            return Judged(Verdict("new_model", target), f"{said}: right in order, wrong in strength")
        return Judged(Verdict("new_theory", target), said)

    def revise(self, view: View, verdict: Verdict, tried: Sequence[Candidate]) -> Revised:
        """A neighbour of the best so far that was not tried yet; at first a form with another core."""
        grammar = view.domain.grammar
        rng = np.random.default_rng(view.key)
        known = {spec.form_in(view.domain) for spec in view.theories.values()}
        known |= {one.spec.form for one in tried}
        if verdict.ruling == "new_model":
            left = [form for form in _revisions(view, view.slots[verdict.target - 1]) if form not in known]
            return _drawn(left, rng)
        scored = [one for one in tried if one.accepted and one.spec.form is not None and one.loss is not None]
        if not scored:
            return _drawn(_fresh(view, grammar, known), rng)
        best = min(scored, key=lambda one: one.loss if one.loss is not None else np.inf).spec.form
        assert best is not None
        near = [form for form in grammar.neighbours(best) if form not in known]
        if not near or rng.random() < LEAPS:
            near = [form for form in grammar.forms() if form not in known]
        return _drawn(near, rng)


def _designs(view: View, rng: np.random.Generator) -> list[Experiment]:
    if view.offers is not None:
        return list(view.offers)
    return [view.domain.design(rng) for _ in range(DESIGNS)]


def _drawn(forms: Sequence[Form], rng: np.random.Generator) -> TheorySpec | None:
    return TheorySpec(form=forms[int(rng.integers(len(forms)))]) if forms else None


def _fresh(view: View, grammar: Grammar, known: set[Form | None]) -> list[Form]:
    """Forms of other cores than those of all theories so far; then any that is not known."""
    cores = {grammar.core(form) for form in known if form is not None}
    others = [form for form in grammar.forms() if grammar.core(form) not in cores]
    return others or [form for form in grammar.forms() if form not in known]


def _revisions(view: View, label: str) -> list[Form]:
    """Other models of a theory, none of which was admitted; none of a theory outside the grammar."""
    grammar, form = view.domain.grammar, view.theories[label].form_in(view.domain)
    if form is None:
        return []
    admitted = {spec.form_in(view.domain) for spec in view.theories.values()}
    same = [one for one in grammar.forms() if grammar.core(one) == grammar.core(form)]
    return [one for one in same if one not in admitted]


def _correlation(view: View, label: str) -> float | None:
    """Correlation of a theory's rates with people's over all stimuli seen; None where it cannot be told."""
    chooser, model, people = view.chooser(label), [], []
    try:
        for one in view.observed:
            experiment = one.observation.experiment
            model.append(predicted_rates(chooser, experiment, view.settings.draws, one.key))
            people.append(one.observation.trials.rates(experiment.stimuli))
    except UserError:
        return None
    return pearson(np.concatenate(model), np.concatenate(people))
