"""The sentences of the report: what was found, and whether its interval backs it."""

from __future__ import annotations

from refork.report.data import Cliff, EffectData, Gain, RateData
from refork.report.words import (
    change_of,
    count,
    level,
    one_line,
    points,
    rate,
    span,
    token_text,
    value_of,
)


def headline(before: RateData | None, after: RateData | None, gain: Gain | None) -> str | None:
    """The page's first line; None where success was not measured before and after."""
    if before is None or after is None or before.rate is None or after.rate is None:
        return None
    both = f"from {rate(before.rate)} to {rate(after.rate)}"
    if gain is not None and gain.low is not None and gain.low > 0:
        return f"Held-out success rose {both}"
    if gain is not None and gain.high is not None and gain.high < 0:
        return f"Held-out success fell {both}"
    return f"Held-out success went {both}, within chance" if gain else f"Held-out success went {both}"


def gain_sentence(before: RateData, after: RateData, gain: Gain | None) -> str:
    """What happened to held-out success, and whether the interval backs it."""
    if before.rate is None or after.rate is None:
        return "Success on held-out tasks was not measured both before and after training."
    both = f"from {rate(before.rate)} to {rate(after.rate)}"
    if gain is None or gain.difference is None or gain.low is None or gain.high is None:
        return f"On held-out tasks, success went {both}; no interval of the gain was computed."
    tasks = f" on {count(gain.n)} held-out tasks" if gain.n is not None else " on held-out tasks"
    ends = f"{level(gain.level)} interval {span(gain.low, gain.high, sign=True)}"
    if gain.low > 0:
        return f"After training, success{tasks} rose {both}: {points(gain.difference)} ({ends})."
    if gain.high < 0:
        return f"After training, success{tasks} fell {both}: {points(gain.difference)} ({ends})."
    return (
        f"Success{tasks} went {both}, but the paired {ends} points includes zero: "
        "this run does not show a change."
    )


def cliff_sentence(cliff: Cliff | None) -> str:
    """Where the swept run was lost."""
    if cliff is None or (
        cliff.before is not None and cliff.after is not None and cliff.before <= cliff.after
    ):
        return "No single token of this run lowers the chance of success clearly."
    if cliff.before is None or cliff.after is None:
        return f"The cliff is at “{token_text(cliff.text)}”; the chances beside it were not computed."
    return (
        f"After “{token_text(cliff.text)}” the chance of success falls "
        f"from {rate(cliff.before)} to {rate(cliff.after)}."
    )


def effect_sentence(effect: EffectData) -> str:
    """What the one change did, whether the interval backs it, and who answered where it was not the world."""
    caution = effect.caution
    return _effect(effect) + (f" {caution[:1].upper()}{caution[1:]}." if caution else "")


def _effect(effect: EffectData) -> str:
    what = one_line(effect.what, 90)
    what = what[:1].upper() + what[1:]
    arms = f"{value_of(effect.base.rate, effect.unit)} to {value_of(effect.other.rate, effect.unit)}"
    if effect.base.rate is None or effect.other.rate is None:
        return f"{what}: the effect of this on {effect.score} was not computed."
    if effect.difference is None or effect.low is None or effect.high is None:
        return f"{what}: {effect.score} goes from {arms}; no interval was computed."
    ends = f"{level(effect.level)} interval {span(effect.low, effect.high, effect.unit, sign=True)}"
    if effect.low > 0 or effect.high < 0:
        verb = "raises" if effect.low > 0 else "lowers"
        size = change_of(effect.difference, effect.unit)
        return f"{what}: this {verb} {effect.score} from {arms}, {size} ({ends})."
    return f"{what}: {effect.score} goes from {arms}, but the {ends} includes zero, so no effect is shown."


def pairing_sentence(effect: EffectData) -> str:
    """How the arms were paired, by which method, and what pairing bought; empty where nothing is known."""
    parts = []
    if effect.points > 1:
        many = f"{count(effect.points)} points of {count(effect.tasks)} tasks"
        parts.append(f"{many} together; the tasks are what the intervals count.")
    if effect.paired is not None:
        noise = (
            "the same noise in both arms" if effect.paired else "independent noise: the arms are not paired"
        )
        parts.append(f"Draw by draw with {noise}." if effect.paired else f"With {noise}.")
    if effect.method:
        parts.append(f"Interval and test: {effect.method}.")
    if effect.paired and effect.unpaired_low is not None and effect.unpaired_high is not None:
        ends = span(effect.unpaired_low, effect.unpaired_high, effect.unit, sign=True)
        parts.append(f"Without pairing the interval would be {ends}.")
    return " ".join(parts)
