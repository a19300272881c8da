"""Classes of difficulty: a mixture over instances, fitted by EM, and how many classes the records bear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork_methods.gate.records import Record, chains, completed, critic_names

#: Most rounds of EM, and the gain in log-likelihood below which it ends.
ROUNDS, GAIN = 300, 1e-6
#: Random beginnings, beside one by how well instances went.
STARTS: Final = 4
#: Kinds of trial before the critics': a first draw is right, a wrong one is fixed, a right one breaks.
FIRST, FIXED, BROKEN = 0, 1, 2


@final
@dataclass(frozen=True, slots=True)
class Trials:
    """What is counted of every instance: successes of trials, arrays [instances, kinds].

    Kinds: a first draw is right, a wrong one is fixed, a right one breaks, then each critic's passes of right
    and of wrong candidates.
    """

    instances: tuple[str, ...]
    passed: Float[np.ndarray, "instances kinds"]
    trials: Float[np.ndarray, "instances kinds"]


@final
@dataclass(frozen=True, slots=True)
class Classes:
    """A mixture: ``shares`` [classes] of the instances, ``chances`` [classes, kinds]; the easiest first."""

    shares: Float[np.ndarray, "classes"]
    chances: Float[np.ndarray, "classes kinds"]
    log_likelihood: float


def count_trials(records: Iterable[Record], critics: Sequence[str], *, changed_only: bool = False) -> Trials:
    """Count the trials of every instance, steps as ``count_steps`` of a fit counts them."""
    kinds = 3 + 2 * len(critics)
    found: dict[str, Float[np.ndarray, "two kinds"]] = {}
    for chain in chains(completed(records)):
        done = [trial for record in chain for trial in _trials(record, critics)]
        for before, then in pairwise(chain):
            if before.step is None or then.step != before.step + 1 or None in (before.right, then.right):
                continue
            if not changed_only or before.artifact != then.artifact:
                done.append((BROKEN if before.right else FIXED, bool(then.right) != bool(before.right)))
        for kind, success in done:
            table = found.setdefault(chain[0].instance, np.zeros((2, kinds)))
            table[:, kind] += (float(success), 1.0)
    names = tuple(found)
    both = np.array([found[name] for name in names]).reshape(len(names), 2, kinds)
    return Trials(names, both[:, 0], both[:, 1])


def _trials(record: Record, critics: Sequence[str]) -> list[tuple[int, bool]]:
    """What one candidate tells by itself: the kinds of its trials, and whether each succeeded."""
    if record.right is None:
        return []
    told = [(FIRST, record.right)] if record.fresh else []
    said = [(3 + 2 * i + (not record.right), record.verdicts.get(name)) for i, name in enumerate(critics)]
    return told + [(kind, passed) for kind, passed in said if passed is not None]


def fit_classes(trials: Trials, count: int, *, seed: int = 0) -> Classes:
    """Fit ``count`` classes by expectation and maximisation, the best of several beginnings.

    Each chance is (s + 1) / (n + 2) over the trials it answers for, as in a fit without classes, and so are
    the shares: the mode under Beta(2, 2) and a Dirichlet of twos.

    Raises: BadInput for fewer than one class, or more classes than instances.
    Ours: arXiv:2606.24453 has no difficulty.
    """
    instances = len(trials.instances)
    if not 1 <= count <= max(1, instances):
        raise BadInput(f"{count} classes of difficulty of {instances} instances", hint="1, 2 or 3")
    rng = np.random.default_rng(seed)
    starts = [rng.dirichlet(np.ones(count), size=instances) for _ in range(STARTS if count > 1 else 0)]
    # By how well an instance's draws went: the difficulty that plans stumble over.
    went = trials.passed[:, FIRST] + trials.passed[:, FIXED] - trials.passed[:, BROKEN]
    rank = np.argsort(np.argsort(-went, kind="stable"), kind="stable") * count // max(1, instances)
    starts.append(0.8 * np.eye(count)[rank] + 0.2 / count)
    return max((_climb(trials, start) for start in starts), key=lambda one: one.log_likelihood)


def _climb(trials: Trials, member: Float[np.ndarray, "instances classes"]) -> Classes:
    """Expectation and maximisation from these chances of each instance to be of each class."""
    best = -np.inf
    failed = trials.trials - trials.passed
    for _ in range(ROUNDS):
        shares = (member.sum(axis=0) + 1) / (member.sum() + member.shape[1])
        chances = (member.T @ trials.passed + 1) / (member.T @ trials.trials + 2)
        joint = trials.passed @ np.log(chances).T + failed @ np.log1p(-chances).T + np.log(shares)
        top = joint.max(axis=1, keepdims=True)
        total = np.exp(joint - top).sum(axis=1, keepdims=True)
        member = np.exp(joint - top) / total
        prior = float(np.log(chances).sum() + np.log1p(-chances).sum() + np.log(shares).sum())
        now = float((top + np.log(total)).sum()) + prior
        if now - best < GAIN:
            break
        best = now
    order = np.argsort(-chances[:, FIRST], kind="stable")
    return Classes(shares[order], chances[order], now)


def log_likelihood(classes: Classes, trials: Trials) -> Float[np.ndarray, "instances"]:
    """The log-likelihood of every instance."""
    failed = trials.trials - trials.passed
    joint = trials.passed @ np.log(classes.chances).T + failed @ np.log1p(-classes.chances).T
    joint = joint + np.log(classes.shares)
    top = joint.max(axis=1, keepdims=True)
    return np.asarray((top + np.log(np.exp(joint - top).sum(axis=1, keepdims=True)))[:, 0])


def held_out_likelihoods(
    records: Sequence[Record],
    critics: Sequence[str] | None = None,
    *,
    most: int = 3,
    folds: int = 5,
    seed: int = 0,
    changed_only: bool = False,
) -> Mapping[int, Float[np.ndarray, "instances"]]:
    """By number of classes, the log-likelihood of each instance by classes that were fitted without it.

    Raises BadInput for fewer instances than folds, or than ``most`` classes to a fit.
    """
    names = tuple(critics) if critics is not None else critic_names(records)
    trials = count_trials(records, names, changed_only=changed_only)
    instances = len(trials.instances)
    if not max(2, most) <= folds <= instances - most:
        raise BadInput(f"{folds} folds of {instances} instances for up to {most} classes")
    order = np.random.default_rng(seed).permutation(instances)
    found = {count: np.zeros(instances) for count in range(1, most + 1)}
    for fold in range(folds):
        held = np.zeros(instances, dtype=np.bool_)
        held[order[fold::folds]] = True
        rest, mine = _only(trials, ~held), _only(trials, held)
        for count, values in found.items():
            values[held] = log_likelihood(fit_classes(rest, count, seed=seed), mine)
    return found


def _only(trials: Trials, which: np.ndarray) -> Trials:
    names = tuple(name for name, wanted in zip(trials.instances, which, strict=True) if wanted)
    return Trials(names, trials.passed[which], trials.trials[which])


def choose_classes(
    records: Sequence[Record],
    critics: Sequence[str] | None = None,
    *,
    seed: int = 0,
    changed_only: bool = False,
) -> int:
    """How many classes tell of instances that they were not fitted on: 1, 2 or 3.

    One more is taken while it gains more than a standard error over the instances. Raises BadInput.
    """
    found = held_out_likelihoods(records, critics, seed=seed, changed_only=changed_only)
    chosen = 1
    for count in sorted(found)[1:]:
        gain = found[count] - found[chosen]
        if gain.mean() <= gain.std(ddof=1) / np.sqrt(gain.size):
            break
        chosen = count
    return chosen
