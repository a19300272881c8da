"""The scripted agent as a policy: real tokens, so its runs grow, fork and pair on the tree like any other's.

A turn's first token is its thought, uniform over 4096; what follows is a function of the transcript. So the
noise of a draw chooses the thoughts, and a fork at any token, with or without another memory, is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import final

from refork.policies.scripted import END, TURN, Distribution, ScriptedPolicy, Words, bare
from refork_testbed.worlds.miniapps.agents import Agent, thought_in
from refork_testbed.worlds.miniapps.catalogue import catalogue
from refork_testbed.worlds.miniapps.mind import THOUGHTS
from refork_testbed.worlds.miniapps.service import PASSWORDS, USERNAME

_WORDS = (
    "apis.", "tools.", "done()", "done(answer=", "access_token='", "password='", "username='", "message_id=",
    "user_id=", "amount=", "note_id=", "event_id=", "song_id=", "request_id=", "page=", "query='", "title='",
    USERNAME,
)  # fmt: skip


def _thoughts() -> tuple[str, ...]:
    return tuple(f"# {number:04d}\n" for number in range(THOUGHTS))


@final
class _Speaker:
    """The law of the next token of a transcript."""

    def __init__(self, agent: Agent, words: Words, since: int, before: Agent | None) -> None:
        self._agent, self._words = agent, words
        self._since, self._before = since, before
        self._first: Distribution = dict.fromkeys(_thoughts(), 1.0 / THOUGHTS)
        self._turn = lru_cache(maxsize=4096)(self._whole_turn)

    def __call__(self, tokens: Sequence[int]) -> Distribution:
        start = max((row + 1 for row, token in enumerate(tokens) if token == TURN), default=0)
        said = self._words.pieces(tokens[start:])[0]
        if not said.startswith("# ") or "\n" not in said:
            return self._first if not said else {"": 1.0}
        whole = self._turn(tuple(tokens[:start]), thought_in(said))
        if not whole.startswith(said):  # somebody else began this turn: it ends there
            return {"": 1.0}
        rest = whole[len(said) :]
        return {self._words.pieces(self._words.encode(rest)[:1])[0] if rest else "": 1.0}

    def _whole_turn(self, before: tuple[int, ...], thought: int) -> str:
        prompt, turns = self._transcript(before)
        first = self._before or self._agent
        session = first.resume(prompt, turns[: self._since])
        if self._before is not None:
            session.read(self._agent.texts, self._agent.tools)
        for said, seen in turns[self._since :]:
            session.say(thought_in(said))
            session.see(seen)
        return session.say(thought)

    def _transcript(self, tokens: tuple[int, ...]) -> tuple[str, list[tuple[str, str]]]:
        """The prompt and the turns (said, seen) before the turn that the tokens open."""
        parts: list[tuple[int, ...]] = []
        start = 0
        for row, token in enumerate(tokens):
            if token in (TURN, END):
                parts.append(tokens[start:row])
                start = row + 1
        texts = [self._words.pieces(part)[0] for part in parts]
        seen = [text.removesuffix("\n") for text in texts[2::2]]
        return texts[0].removesuffix("\n"), list(zip(texts[1::2], seen, strict=True))


def agent_policy(
    agent: Agent, *, name: str = "miniapps", since: int = 0, before: Agent | None = None
) -> ScriptedPolicy:
    """The agent as a policy. Turns may be long: sample with ``max_tokens`` of 512 or more.

    ``before`` acts in the first ``since`` turns and then gets the texts and tools of ``agent``: the policy
    to fork with where another memory is the change. A recorded turn that it would not have said is a
    ReplayDiverged.
    """
    functions = [one.name for one in catalogue()]
    words = Words([*_thoughts(), *_WORDS, *functions, *PASSWORDS.values()])
    told = [
        [sorted(one.rates.slips.items()), [(t.kind, t.body) for t in one.texts], [t.name for t in one.tools]]
        for one in (agent, before or agent)
    ]
    rates = [repr(agent.rates), repr((before or agent).rates)]
    return ScriptedPolicy(
        _Speaker(agent, words, since, before),
        words,
        name=name,
        identity=["miniapps", 1, told, rates, since],
    )


def miniapps_script(argument: str) -> ScriptedPolicy:
    """``miniapps``: works in the five apps and slips at its usual rates."""
    bare("miniapps", argument)
    return agent_policy(Agent(), name="scripted:miniapps")
