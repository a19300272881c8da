"""The writer that is a model: what it is shown, and what is read from its answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kernel.search.helpers_search import FINDING, PROBLEM, TableEvaluator
from refork.chat import Reply, ScriptedChat
from refork.errors import ServerError
from refork.sampling.noise import NoiseKey, uniforms
from refork.types import Json, Message
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.chatting import MOST_SOURCE, ChatWriter, code_of, question, said_before
from refork_methods.kernel.search.model import KernelSearchSettings, Observation, Trial, WriterState
from refork_methods.kernel.search.run import run_search

FAILED = Evaluated(ok=False, stage="build", why="k.c:3: error: expected ';'")
DONE = Evaluated(ok=True, stage="done", speedup=2.5)


def state(evaluated: Evaluated = DONE, seen: Observation | None = None, **given: object) -> WriterState:
    told: dict[str, object] = {
        "entry": "scale", "number": 3, "path": (0, 3), "candidate": Candidate("void scale(void);", ("-O2",)),
        "evaluated": evaluated, "observation": seen, "tried": (), "trials": (), "notes": (),
        "known": frozenset(), "noise": 1.0, "key": (0, 4, 1),
    }  # fmt: skip
    return WriterState(**{**told, **given})  # type: ignore[arg-type]


def test_the_last_block_of_c_counts() -> None:
    text = "First\n```c\nint a;\n```\nno, better:\n```C\nint b;\n```\n```text\nlog\n```\n"
    assert code_of(text) == "int b;\n"
    assert code_of("```\nint x;\n```") == "int x;\n"
    assert code_of("```cpp\nint y;\n```\n") == "int y;\n"
    assert code_of("no code") is None
    assert code_of("```c\n\n```") is None
    assert code_of("```c\nint cut;") is None
    assert said_before("I tile\nit. ```c\nint a;\n```") == "I tile it."


def test_the_question_holds_source_findings_notes_and_tries() -> None:
    trials = [
        Trial(4, 3, "answer 1.0", "answer", (), True, 0.8, ""),
        Trial(5, 3, "answer 1.1", "answer", (), False, None, "wrong by 3"),
        Trial(6, 2, "elsewhere", "answer", (), True, 2.0, ""),
    ]
    text = question(state(seen=Observation((FINDING,)), trials=trials, notes=["fact: tiling helps"]))
    for part in ("`scale`", "-O2", "void scale(void);", "2.5 times as fast", FINDING.sentence, "a.c:3: Dr=5",
                 "0.8 times this version's speed", "failed: wrong by 3", "- fact: tiling helps"):  # fmt: skip
        assert part in text
    assert "elsewhere" not in text


def test_each_arm_is_shown_its_own() -> None:
    raw = question(state(seen=Observation(counters={"cachegrind.reads": 12345.0})))
    assert "cachegrind.reads = 12345" in raw
    assert "Found by profiling" not in raw
    plain = question(state())
    assert "rofil" not in plain
    assert "found nothing" in question(state(seen=Observation()))


def test_a_kernel_that_fails_goes_back_with_its_error() -> None:
    text = question(state(FAILED))
    assert "does not compile" in text
    assert "expected ';'" in text
    wrong = Evaluated(ok=False, stage="check", why="wrong by 3")
    assert "Its result is wrong: wrong by 3" in question(state(wrong))


def test_answers_without_code_are_refused_and_say_why() -> None:
    made = ChatWriter(ScriptedChat(["I cannot."])).propose(state())
    assert made.refused == "no C block in the answer"
    assert made.source == "void scale(void);"

    class Cut:
        name = "cut"

        def reply(self, messages: object, *, tools: object = (), draw: int = 0) -> Reply:
            return Reply({"role": "assistant", "content": "```c\nint a"}, "length")

    assert "cut off" in ChatWriter(Cut()).propose(state()).refused  # type: ignore[arg-type]
    huge = ChatWriter(ScriptedChat([f"```c\n{'x' * (MOST_SOURCE + 1)}\n```"])).propose(state())
    assert "more than" in huge.refused


def test_text_that_no_file_can_hold_is_mended() -> None:
    made = ChatWriter(ScriptedChat(["```c\nint a; // \ud800\n```"])).propose(state())
    assert made.source.encode()


@pytest.mark.parametrize("seed", [0, 4294, 4295, 2**31])
def test_draws_of_any_seed_are_numbers_that_noise_takes(seed: int) -> None:
    drawn: list[int] = []

    class Draws:
        name = "draws"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            drawn.append(draw)
            uniforms([NoiseKey(seed, 1, draw)], 1)
            return Reply({"role": "assistant", "content": "no"})

    for round_, index in ((0, 0), (0, 1), (3, 2)):
        ChatWriter(Draws()).propose(state(key=(seed, round_, index)))
    assert len(set(drawn)) == 3
    # Seeds that had draws keep them.
    assert seed > 4294 or drawn == [seed * 1_000_003 + more for more in (0, 1, 305)]


def test_a_search_with_a_model_resumes_without_asking_again(tmp_path: Path) -> None:
    answers = iter(f"Try {n}.\n```c\nstart {'a ' * n}\n```" for n in range(1, 100))
    asked: list[str] = []

    def say(messages: object) -> str:
        asked.append(str(messages))
        if len(asked) == 4 and len(failing) == 0:
            failing.append(True)
            raise ServerError("the server is away")
        return next(answers)

    failing: list[bool] = []
    tried = TableEvaluator(lambda one: 1.0 + 0.1 * one.source.count("a "))

    def run() -> list[str]:
        result = run_search(
            PROBLEM, KernelSearchSettings(evaluations=6), tmp_path / "s", evaluator=tried,
            writer=ChatWriter(ScriptedChat(say)),
        )  # fmt: skip
        return [node.candidate.source for node in result.nodes]

    with pytest.raises(ServerError):
        run()
    sources = run()
    assert len(asked) == 6 + 1 + 1  # the failed one again, with the other one of its round
    assert len(set(sources)) == 7
    assert len({one.source for one in tried.evaluated}) == len(tried.evaluated)
