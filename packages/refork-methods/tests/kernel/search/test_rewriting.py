"""The writer without a model: advice first, gravest first, silenced where it did not help, none twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from refork.errors import BadInput
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.rewrite import Move
from refork_methods.kernel.search.model import Observation, Trial, WriterState
from refork_methods.kernel.search.rewriting import (
    REORDERED,
    RewriteWriter,
    advised,
    silenced,
    worth,
)
from refork_methods.kernel.tool import Finding, Slip

DONE = Evaluated(ok=True, stage="done", speedup=1.0)


def move(name: str, argument: str = "", *tools: str, **given: Any) -> Move:
    return Move(name, {"to": argument}, tools, **given)


class Book:
    """Four kinds of moves; each appends its name to the source."""

    all = (
        move("interchange", "i,j", "Strided"),
        *(move("tile", str(size), "Strided", "Capacity") for size in (16, 32, 64)),
        move("restrict", "", "Alias"),
        move("prefetch"),
    )

    def moves(
        self, source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None
    ) -> Sequence[Move]:
        return self.all

    def apply(
        self, source: str, entry: str, flags: tuple[str, ...], move: Move
    ) -> tuple[str, tuple[str, ...]]:
        if move.name == "prefetch":
            raise BadInput("not here")
        return f"{source}\n{move.id}", flags


def found(tool: str, action: str = "Do it.") -> Finding:
    return Finding(tool=tool, category="memory", severity="warn", cause="It is slow.", action=action)


def state(*findings: Finding, **given: object) -> WriterState:
    made = WriterState(
        entry="f", number=0, path=(0,), candidate=Candidate("s", ()), evaluated=DONE,
        observation=Observation(findings), tried=(), trials=(), notes=(), known=frozenset(), noise=1.05,
        key=(0, 0, 0),
    )  # fmt: skip
    return replace(made, **given)  # type: ignore[arg-type]


def tried(move: str, tool: str, gain: float | None, parent: int = 0) -> Trial:
    return Trial(1, parent, move, move.partition("(")[0], (tool,), gain is not None, gain, "")


def drawn(some: WriterState, unguided: float = 0.0, times: int = 300) -> Counter[str]:
    writer = RewriteWriter(Book(), unguided)
    made = (writer.propose(replace(some, key=(0, 0, n))) for n in range(times))
    return Counter(one.family for one in made if one is not None)


def test_advice_is_followed_and_a_kind_with_many_parameters_counts_once() -> None:
    got = drawn(state(found("Strided")))
    assert set(got) == {"interchange", "tile"}
    # Fair halves: 300 draws lie outside 105..195 once in 5 million.
    assert 105 < got["tile"] < 195


def test_the_gravest_comes_first() -> None:
    weights = advised(Book.all, state(found("Alias"), found("Strided")))
    assert weights["restrict()"] == 1.0
    assert weights["interchange(i,j)"] == 0.5
    assert weights["tile(16)"] == pytest.approx(0.5 / 3)
    assert set(advised(Book.all, state(found("CpuAlias")))) == {"restrict()"}
    # A finding that no move answers takes no rank.
    assert advised(Book.all, state(found("Nobody"), found("Alias"))) == {"restrict()": 1.0}


def test_a_share_follows_no_advice() -> None:
    got = drawn(state(found("Alias")), unguided=0.15, times=1000)
    # Of the free tries a third draws restrict too (prefetch cannot be applied): .9 in all, sd .0095.
    assert 0.86 < got["restrict"] / 1000 < 0.94
    assert drawn(state(found("Alias")))["restrict"] == 300


def test_without_findings_every_kind_is_alike() -> None:
    got = drawn(state())
    assert set(got) == {"interchange", "tile", "restrict"}
    assert min(got.values()) > 60
    assert drawn(state(observation=None)).keys() == got.keys()


def test_advice_that_did_not_help_is_silenced_on_its_path_alone() -> None:
    one = state(found("Strided"), trials=[tried("tile(16)", "Strided", 0.9)])
    assert silenced(one) == set()
    two = replace(one, trials=[*one.trials, tried("tile(32)", "Strided", None)])
    assert silenced(two) == {("Strided", "tile")}
    assert set(drawn(two)) == {"interchange"}
    assert silenced(replace(two, path=(0, 7))) == {("Strided", "tile")}
    assert silenced(replace(two, path=(3,))) == set()
    # Of a move without parameters once is enough; a gain over the noise silences nothing.
    assert silenced(state(trials=[tried("restrict()", "Alias", 1.04)])) == {("Alias", "restrict")}
    assert silenced(state(trials=[tried("restrict()", "Alias", 1.06)])) == set()
    # Another tool may still ask for it.
    assert set(drawn(replace(two, observation=Observation((found("Capacity"),))))) == {"tile"}


def test_where_all_advice_is_silenced_the_rest_is_tried() -> None:
    some = state(found("Alias"), trials=[tried("restrict()", "Alias", 1.0)])
    assert set(drawn(some)) == {"interchange", "tile", "restrict"}


def test_a_kind_that_helped_is_drawn_more_often() -> None:
    trials = [tried("tile(16)", "Strided", 3.0, parent=9)] * 3
    assert worth(trials)["tile"] == pytest.approx(3 ** (3 / 4))
    assert worth([tried("tile(16)", "T", None)])["tile"] == pytest.approx(0.5**0.5)
    got = drawn(state(found("Strided"), trials=trials))
    assert got["tile"] > 1.5 * got["interchange"]


def test_nothing_is_proposed_twice_and_the_end_is_said() -> None:
    writer, made = RewriteWriter(Book(), 0.5), list[str]()
    while True:
        one = writer.propose(state(tried=tuple(made), key=(1, 2, len(made))))
        if one is None:
            break
        made.append(one.move)
    assert sorted(made) == sorted(one.id for one in Book.all if one.name != "prefetch")
    same = Candidate("s\nrestrict()", ()).digest
    some = state(found("Alias"), tried=tuple(made[:0]), known={same})
    assert drawn(some)["restrict"] == 0


def test_a_kernel_that_fails_is_not_rewritten() -> None:
    failing = Evaluated(ok=False, stage="build", why="no")
    assert RewriteWriter(Book()).propose(state(evaluated=failing)) is None


def test_a_proposal_says_whose_advice_it_follows() -> None:
    made = RewriteWriter(Book(), 0.0).propose(state(found("Alias", "Declare them restrict.")))
    assert made is not None
    assert (made.move, made.answers) == ("restrict()", ("Alias",))
    assert made.why == "It is slow. Declare them restrict."
    free = RewriteWriter(Book(), 1.0).propose(state(found("Alias")))
    assert free is not None
    assert (free.why, free.answers) == ("no advice", ())


class Locked:
    """A promise opens the only move that helps; a second promise is not to be had."""

    def moves(
        self, source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None
    ) -> Sequence[Move]:
        if "restrict" in source:
            return (move("tile", "8", "Strided"), move("jam", "4", "Alias"))
        return (move("restrict", assumes="no overlap"), move("tile", "8", "Strided"))

    def apply(
        self, source: str, entry: str, flags: tuple[str, ...], move: Move
    ) -> tuple[str, tuple[str, ...]]:
        return f"{source} {move.name}", (*flags, str(move.parameters["to"]))


def test_what_a_promise_opens_is_offered_with_it() -> None:
    writer = RewriteWriter(Locked(), 0.0, keys=("restrict",))
    made = writer.propose(state(found("Alias")))
    assert made is not None
    assert (made.move, made.family, made.answers) == ("restrict()+jam(4)", "jam", ("Alias",))
    assert (made.source, made.flags) == ("s restrict jam", ("", "4"))
    assert made.granted == ("no overlap",)
    own = writer.propose(state(found("Strided")))
    assert own is not None
    assert (own.move, own.source) == ("tile(8)", "s tile")
    bare = RewriteWriter(Locked(), 0.0).propose(state(found("Alias")))
    assert bare is not None
    assert "+" not in bare.move


def test_a_proposal_says_what_its_move_takes_for_granted() -> None:
    class Promise(Book):
        all = (move("restrict", assumes="no overlap", reassociates=True),)

    made = RewriteWriter(Promise()).propose(state())
    assert made is not None
    assert made.granted == ("no overlap", REORDERED)
