"""The loop: its budget, its determinism, what it shows a writer, and a way out of a local optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.loop import SearchLoop
from refork_methods.kernel.search.model import KernelSearchSettings, Observation, Proposal, WriterState
from refork_methods.kernel.search.strategy import SearchSettings
from refork_methods.kernel.tool import Finding
from support.kernel_search_fakes import TableEvaluator, WordWriter

ROOT = Candidate("start", ("-O2",))
WORDS = ("a", "b", "c", "d")


def speed(one: Candidate) -> float | None:
    """Longer is faster, ``d`` fails, and the rest is a hash of the words."""
    words = one.source.split()[1:]
    if "d" in words:
        return None
    return 1.0 + 0.3 * len(words) + 0.1 * sum(ord(word) * (i + 1) for i, word in enumerate(words)) % 1


def searched(**given_: object) -> SearchLoop:
    settings_ = KernelSearchSettings(**{"feedback": "none", **given_})  # type: ignore[arg-type]
    loop = SearchLoop("entry", ROOT, settings_, TableEvaluator(speed), WordWriter(WORDS))
    assert loop.run()
    return loop


def told(loop: SearchLoop) -> list[tuple[int, str]]:
    return [(node.parent, node.candidate.source) for node in loop.nodes]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 1000), st.integers(1, 40), st.integers(1, 5), st.sampled_from(["mcts", "hill"]),
)  # fmt: skip
def test_budgets_hold_and_a_seed_gives_one_tree(seed: int, budget: int, batch: int, kind: str) -> None:
    one = searched(seed=seed, evaluations=budget, batch=batch, search=kind)
    assert one.done <= budget
    assert told(one) == told(searched(seed=seed, evaluations=budget, batch=batch, search=kind))
    assert [node.number for node in one.nodes] == list(range(len(one.nodes)))
    assert all(node.parent < node.number for node in one.nodes)
    right = [node.evaluated.speedup or 0 for node in one.nodes if node.evaluated.ok]
    assert one.best.evaluated.speedup == max(right)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 25), st.integers(1, 25), st.integers(1, 4))
def test_a_longer_search_begins_like_a_shorter_one(seed: int, less: int, more: int, batch: int) -> None:
    short = told(searched(seed=seed, evaluations=less, batch=batch))
    assert told(searched(seed=seed, evaluations=less + more, batch=batch))[: len(short)] == short


def test_no_code_is_tried_twice() -> None:
    evaluator = TableEvaluator(lambda one: 1.5)
    loop = SearchLoop(
        "entry", ROOT, KernelSearchSettings(feedback="none", evaluations=30, batch=3), evaluator,
        Reply(["start", "x", "x", "y"]),
    )  # fmt: skip
    loop.run()
    sources = [one.source for one in evaluator.evaluated]
    assert len(sources) == len(set(sources))
    again = [node for node in loop.nodes[1:] if node.evaluated.why.startswith("the same code as node")]
    assert loop.done == 30
    assert len(again) == 30 - len(sources) + 1
    assert all(not node.evaluated.ok for node in again)
    # It is not the compiler that had something against them.
    assert {node.evaluated.stage for node in again} == {"untried"}


class Reply:
    """Proposes texts in turn, whatever it is shown, and keeps what that was."""

    name = "reply"

    def __init__(self, texts: list[str], refused: str = "") -> None:
        self.texts, self.refused = texts, refused
        self.states: list[WriterState] = []

    def propose(self, state: WriterState) -> Proposal:
        text = self.texts[len(self.states) % len(self.texts)]
        self.states.append(state)
        return Proposal(text, ("-O2",), f"say {len(self.states)}", "so", "say", refused=self.refused)


def test_a_refused_proposal_fails_without_being_built() -> None:
    evaluator = TableEvaluator(speed)
    loop = SearchLoop(
        "entry", ROOT, KernelSearchSettings(evaluations=6), evaluator, Reply(["start"], "no code")
    )
    loop.run()
    assert loop.done == 6
    assert [one.source for one in evaluator.evaluated] == ["start"]
    assert evaluator.prepared == []
    assert all(node.evaluated.why == "no code" for node in loop.nodes[1:])
    assert loop.best.number == 0


@pytest.mark.parametrize("feedback", ["diagnosed", "raw", "none"])
def test_a_writer_is_shown_what_its_arm_allows(feedback: str) -> None:
    finding = Finding(tool="T", category="memory", severity="warn", cause="It is slow.", action="Mend it.")

    class Both:
        noise = 1.0
        asked = 0

        def __getattr__(self, name: str) -> object:
            return getattr(TableEvaluator(speed), name)

        def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
            self.asked += 1
            return Observation((finding,), {"cachegrind.reads": 5.0})

    writer, evaluator = Reply(["a", "b", "c"]), Both()
    SearchLoop("entry", ROOT, KernelSearchSettings(evaluations=3, feedback=feedback), evaluator, writer).run()  # type: ignore[arg-type]
    seen = writer.states[0].observation
    if feedback == "none":
        assert seen is None
        assert evaluator.asked == 0
        return
    assert seen is not None
    assert bool(seen.findings) == (feedback == "diagnosed")
    assert bool(seen.counters) == (feedback == "raw")


def test_a_profile_that_fails_is_data() -> None:
    class Blind:
        def __getattr__(self, name: str) -> object:
            return getattr(TableEvaluator(speed), name)

        def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
            raise CannotDo("no valgrind here")

    loop = SearchLoop("entry", ROOT, KernelSearchSettings(evaluations=4), Blind(), WordWriter(WORDS))  # type: ignore[arg-type]
    loop.run()
    assert "no valgrind" in loop.observations[0].absent["diagnosis"]
    assert loop.done == 4


def test_the_original_must_be_right() -> None:
    loop = SearchLoop(
        "entry", ROOT, KernelSearchSettings(), TableEvaluator(lambda one: None), WordWriter(WORDS)
    )
    with pytest.raises(BadInput, match="the kernel itself fails"):
        loop.run()


def test_builds_go_ahead_for_a_whole_round_and_only_for_new_code() -> None:
    evaluator = TableEvaluator(lambda one: 1.5)
    writer = Reply(["a", "b", "c", "a", "d", "e"])
    SearchLoop(
        "entry", ROOT, KernelSearchSettings(evaluations=6, batch=3, feedback="none"), evaluator, writer
    ).run()
    assert [[one.source for one in some] for some in evaluator.prepared] == [["a", "b", "c"], ["d", "e"]]


def test_hill_climbing_moves_for_a_gain_over_the_noise_alone_and_ends_when_stuck() -> None:
    gains = {"start": 1.0, "start a": 1.04, "start b": 1.5, "start b a": 1.52, "start b b": 3.0}
    evaluator = TableEvaluator(lambda one: gains.get(one.source, 0.5), noise=1.05)
    loop = SearchLoop(
        "entry", ROOT, KernelSearchSettings(evaluations=50, search="hill", batch=1, feedback="none"),
        evaluator, WordWriter(("a", "b")),
    )  # fmt: skip
    assert loop.run()
    # From a move within the noise nothing is written; from the fastest both moves lose, and that is the end.
    assert all(node.parent != 1 or node.candidate.source != "start a" for node in loop.nodes)
    parents = {loop.nodes[node.parent].candidate.source for node in loop.nodes[1:]}
    assert parents == {"start", "start b", "start b b"}
    assert loop.done < 50
    assert loop.best.candidate.source == "start b b"


def test_notes_tell_errors_once_gains_and_plateaus() -> None:
    loop = searched(evaluations=30, plateau=5, seed=3)
    errors = [note for note in loop.notes if note.startswith("error")]
    assert 0 < len(errors) == len(set(errors)) <= len(WORDS)
    assert {note.partition(":")[0] for note in loop.notes} == {"error", "fact", "plateau"}
    assert loop.notes == [note for node in loop.nodes for note in node.notes]
    stuck = [note for note in loop.notes if note.startswith("plateau")]
    assert all(int(note.split()[-2]) % 5 == 0 for note in stuck)


class Walk:
    """Draws one of the moves left at a node; the landscape is three moves deep."""

    def __init__(self, moves: int) -> None:
        self.words = WordWriter([str(number) for number in range(moves)], longest=3)
        self.name = "walk"

    def propose(self, state: WriterState) -> Proposal | None:
        return self.words.propose(state)


def trapped(seed: int, evaluations: int, kind: str, moves: int = 4) -> bool:
    """Whether a search finds the third of three moves of which the first two only lose."""
    rng = np.random.default_rng(seed)
    secret = rng.integers(moves, size=3).astype(str).tolist()

    def gain(one: Candidate) -> float:
        words = one.source.split()[1:]
        steps = (
            (6.0 if i == 2 else 0.8) if words[: i + 1] == secret[: i + 1] else 0.95 for i in range(len(words))
        )
        return math.prod(steps)

    settings_ = KernelSearchSettings(
        evaluations=evaluations, search=kind, feedback="none", seed=seed, batch=1,  # type: ignore[arg-type]
        tree=SearchSettings(),
    )  # fmt: skip
    loop = SearchLoop("entry", ROOT, settings_, TableEvaluator(gain), Walk(moves))
    loop.run()
    return loop.best.candidate.source.split()[1:] == secret


def test_the_tree_leaves_the_trap_and_hill_climbing_never_does() -> None:
    # Of 1000 seeds .51 succeed at 60; a share outside (.2, .8) in 40 others would come once in 20,000.
    assert not any(trapped(seed, 120, "hill") for seed in range(40))
    assert 0.2 < np.mean([trapped(seed, 60, "mcts") for seed in range(40)]) < 0.8
    assert all(trapped(seed, 120, "mcts") for seed in range(20))


@pytest.mark.parametrize(
    "bad", [{"evaluations": 0}, {"batch": 0}, {"unguided": 1.5}, {"search": "bfs"}, {"feedback": "some"},
            {"seed": -1}, {"most": 1.0}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        KernelSearchSettings(**bad)  # type: ignore[arg-type]
