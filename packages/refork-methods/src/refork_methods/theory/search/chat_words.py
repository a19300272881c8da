"""What a chat model is told in each role. Held-out observations are in no view, and so in no prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from refork.plain import canonical
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.scientist import Candidate, View

SYSTEM: Final = """\
You do experimental psychology of choice. A theory is executable: `predict(parameters, stimulus, history)`
returns [P(A), P(B)], and parameters are drawn from priors once for each simulated person. Nothing is fitted:
a theory is as good as what its priors predict. Answer with one JSON object in a ```json block, with exactly
the fields that are asked for."""

DESIGN: Final = """\
You advocate one theory. Propose an experiment in which it should be right and its rival wrong, and up to four
statistics of people's choices that would show it. It is used only if simulated people of the two theories
differ in a statistic beyond chance, by Welch's test at the number of people who will take part.
Fields: "experiment" (as described), "statistics" (a list), "why" (one sentence). A statistic is one of
{"kind": "share_of_b"}, {"kind": "switch_rate"}, {"kind": "lag_one"},
{"kind": "share_of_b_at", "stimuli": [0, 3]},
{"kind": "agreement", "name": "...", "sides": [1, -1, 0, ...]} (a number for each pair: above 0 expects B),
{"kind": "code", "name": "...", "source": "def metric(trials): ..."}; trials is a tuple, in trial order, of
{"stimulus": {...}, "number": 0, "response": 0 or 1}. A statistic must be defined for one person alone."""

VERDICT: Final = """\
You are the arbiter. Two theories stand; people have chosen. Say which one loses its place.
Fields: "ruling": "new_model" (its prose is right, its code or priors are wrong) or "new_theory" (its idea is
wrong), "target": 1 or 2 (the slot that loses), "why" (at most three sentences). Prefer ideas that hold across
experiments to ones that fit a single one."""

REVISION: Final = """\
You write the successor of a theory. It must come near to what people chose in all experiments so far, from
its priors alone. Fields: "name", "theory" (prose; left out for a new model of the same theory), "parameters"
(name to prior: "[lo, hi]" uniform, "{a, b}" one of the values, "[(lo, hi)] * n" a list, a number), "predict"
(Python source), "policy" (optional source of policy(probabilities, noise) -> 0 or 1), "rationale" (optional).
`history` is a tuple of {"stimulus", "response"}, oldest first. Of modules only math is there; no files, no
network, no chance, no state between calls. If nothing better comes to mind after a candidate was accepted,
answer {"done": true}."""

#: Observations and candidates shown in full.
_SHOWN: Final = 10
_BEST: Final = 3


def design_question(view: View, side: int, refused: Sequence[str]) -> str:
    """What an advocate is told."""
    mine, other = view.slots[side - 1], view.slots[2 - side]
    parts = [view.domain.words, f"Your theory:\n{_theory(view, mine)}", f"Its rival:\n{_theory(view, other)}"]
    parts.append(
        f"{view.settings.people} people will take part; the level is {view.settings.alpha:g}, shared among "
        f"{view.settings.attempts} tests."
    )
    if view.offers is not None:
        lines = "\n".join(canonical(one.to_json()) for one in view.offers)
        parts.append(f"People can answer only one of these experiments; copy one unchanged:\n{lines}")
    parts += _past(view)
    if refused:
        parts.append("Refused in this round:\n" + "\n".join(f"- {one}" for one in refused))
    return "\n\n".join(parts)


def verdict_question(view: View) -> str:
    """What the arbiter is told."""
    slots = [f"Slot {at}, {label}:\n{_theory(view, label)}" for at, label in enumerate(view.slots, 1)]
    return "\n\n".join([view.domain.words, *slots, *_past(view), _board(view)])


def revision_question(view: View, verdict: Verdict, tried: Sequence[Candidate]) -> str:
    """What the writer of a successor is told."""
    label = view.slots[verdict.target - 1]
    wanted = "a new model of the same theory" if verdict.ruling == "new_model" else "a new theory"
    parts = [view.domain.words, f"Write {wanted} in place of {label}:\n{_theory(view, label)}"]
    parts += [*_past(view), _board(view)]
    scored = sorted((one for one in tried if one.loss is not None), key=lambda one: one.loss or 0.0)[:_BEST]
    for one in scored:
        state = "accepted" if one.accepted else "not better than the best before it"
        text = one.spec.theory(view.domain)
        parts.append(f"Tried, loss {one.loss:.5f}, {state}:\n{'' if text is None else text.to_yaml()}")
    failed = [one for one in tried if one.loss is None][-_BEST:]
    if failed:
        parts.append("Could not be run:\n" + "\n".join(f"- {one.why}" for one in failed))
    return "\n\n".join(parts)


def _theory(view: View, label: str) -> str:
    found = view.theories[label].theory(view.domain)
    return found.to_yaml() if found is not None else f"{view.theories[label].title(view.domain)} (no source)"


def _past(view: View) -> list[str]:
    """Experiments so far, what people chose, and what each theory predicted."""
    found = []
    first = max(0, len(view.seen) - _SHOWN)
    for place, one in enumerate(view.seen[first:], first):
        lines = [
            f"Experiment {one.name}: {canonical(one.observation.experiment.to_json())}",
            f"People's share of B, pair by pair: {[round(float(x), 3) for x in one.rates]}",
            f"Statistic {one.metric.name!r}: people {one.real:.4f}",
        ]
        for label, rows in view.predicted.items():
            row = rows[place]
            value = "undefined" if row.value is None else f"{row.value:.4f}"
            lines.append(f"  {label}: {value}; squared error of the shares {row.mse_pb:.4f}")
        found.append("\n".join(lines))
    return found


def _board(view: View) -> str:
    rows = sorted(view.losses.items(), key=lambda pair: pair[1])
    return "Loss over all experiments:\n" + "\n".join(f"  {label}: {value:.5f}" for label, value in rows)
