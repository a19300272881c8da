"""A search as plain figures, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from refork.types import Json
from refork_methods.theory.order import OrderScore, score_order
from refork_methods.theory.predictive import Decision, Scoreboard, score_theories
from refork_methods.theory.search.loop import Outcome, TheorySearch


def scoreboard(search: TheorySearch, *, draws: int = 1000, redraws: int = 500) -> Scoreboard | None:
    """All theories of a search on all that it observed, with intervals; None where it observed nothing.

    Theories chosen on these observations look better on them than they are: see the held-out ones.
    """
    if not search.observed:
        return None
    choosers = [spec.chooser(label, search.domain, search.sandbox) for label, spec in search.theories.items()]
    observations = [one.observation for one in search.observed]
    return score_theories(choosers, observations, seed=search.settings.seed, draws=draws, redraws=redraws)


def decided(search: TheorySearch, board: Scoreboard) -> Decision:
    """What may be said of a search's theories, by rates and order of what it observed."""
    choosers = [search.theories[one].chooser(one, search.domain, search.sandbox) for one in board.untold()]
    seen = [one.observation for one in search.observed]
    return board.decide(score_order(choosers, seen, seed=search.settings.seed))


def ordered(search: TheorySearch, outcome: Outcome) -> OrderScore | None:
    """Lag-1 of the best theory beside people's; None where people's choices show none beyond chance.

    A theory of order alone has a coin's rates and can win nothing by them: this is what it is seen by.
    """
    if outcome.best is None:
        return None
    chooser = search.theories[outcome.best].chooser(outcome.best, search.domain, search.sandbox)
    found = score_order([chooser], [one.observation for one in search.observed], seed=search.settings.seed)[0]
    if found.people is None or found.people.low <= 0 <= found.people.high:
        return None
    return found


def told_search(search: TheorySearch, outcome: Outcome) -> Json:
    """What a search found: theories of least loss first, observations, verdicts, refused designs, winner.

    ``best`` is the theory of least loss, ``decision`` what may be said of the nearest in rates; ``winner``
    is None where that is less than that it fits and all others are told apart from it.
    """
    board = scoreboard(search)
    standings = outcome.pool.replay()
    relative = standings[-1].scores if standings else {}
    rows: list[dict[str, Any]] = []
    for label, spec in search.theories.items():
        errors = [one.mse_pb for one in search.predicted[label]]
        rows.append({
            "label": label, "title": spec.title(search.domain), "parent": search.parents[label],
            "slot": search.slots.index(label) + 1 if label in search.slots else None,
            "loss": outcome.losses.get(label),
            "mse_pb": sum(errors) / len(errors) if errors else None,
            "relative": relative.get(label),
        })  # fmt: skip
    order = ordered(search, outcome)
    decision = None if board is None else decided(search, board)
    return {
        "order": None if order is None else asdict(order),
        "state": outcome.state,
        "why": outcome.why,
        "best": outcome.best,
        "winner": None if decision is None else decision.winner,
        "decision": None if decision is None else decision.to_json(),
        "theories": sorted(rows, key=lambda row: (row["loss"] is None, row["loss"])),
        "observations": [
            {"name": one.name, "people": len(one.observation.trials.people), "statistic": one.metric.name,
             "real": one.real}
            for one in search.observed
        ],
        "verdicts": _verdicts(search),
        "refused": refused(search),
        "digest": search.record.digest,
    }  # fmt: skip


def _verdicts(search: TheorySearch) -> list[Json]:
    found = []
    for key, step in search.record.items():
        if key.endswith("/verdict") and "ruling" in step:
            number = key.partition("/")[0]
            admitted = search.record.get(f"{number}/admitted")
            loser = admitted["parent"] if admitted else "-"
            found.append({"round": int(number), "ruling": step["ruling"], "loser": loser, "why": step["why"]})
    return found


def refused(search: TheorySearch) -> list[Json]:
    """Designs that were refused, and why; faults of the roles too."""
    found: list[Json] = []
    for key, step in search.record.items():
        number, _, rest = key.partition("/")
        name = f"round {number}, side {rest.partition('/')[0]}"
        if key.endswith("/gate") and step["accepted"] is None:
            found.append({"name": name, "why": _nearest(step["results"])})
        elif "fault" in step and not key.endswith("/verdict"):
            found.append({"name": name, "why": step["fault"]})
    return found


def _nearest(results: list[Json]) -> str:
    """The statistic that came nearest to telling the theories apart, and how many people would do."""
    tested = [one for one in results if one["p"] is not None]
    if not tested:
        return "; ".join(str(one["reason"]) for one in results) or "no statistic"
    best = min(tested, key=lambda one: float(one["p"]))
    needed = "no number of people" if best["needed"] is None else f"{best['needed']} people"
    return f"{best['statistic']}: {best['reason']}; {needed} would do"
