"""The writer that is a model: it is shown a kernel and what is known of it, and answers with a whole one.

It only writes. What it wrote is built and run by the bench alone. Words of the prompt are ours.
"""

from __future__ import annotations

import re
from typing import final

from refork.chat import ChatModel
from refork.types import Message
from refork_methods.kernel.search.model import Observation, Proposal, Trial, WriterState

SYSTEM = """You make C kernels fast on one core of a CPU. You are given a kernel and what was measured of it.
Write one better version. Keep the entry's name and parameters, and what it computes. Use no threads, no
files, no system calls, and keep nothing between calls. Answer with one or two sentences on what you change
and why, then the whole file in one ```c block. Only the last such block is read."""

#: Newest notes and tries that are shown, counters at most, and characters of one cause.
_NOTES, _TRIES, _COUNTERS, _CAUSE = 20, 12, 60, 600
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+#.-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
#: Longest source that is taken, in characters.
MOST_SOURCE = 200_000


@final
class ChatWriter:
    """Asks a chat model for the next kernel; compile errors and wrong results go back to it to be mended."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's."""
        return f"chat:{self._model.name}"

    def propose(self, state: WriterState) -> Proposal:
        """What the model wrote, never None: an answer without code is a proposal that is refused.

        Raises:
            ServerError: the model gave no answer.
        """
        _, round_, index = state.key
        move = f"answer {round_}.{index}"
        messages: list[Message] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question(state)},
        ]
        # Draws are numbers of 32 bits, which a seed of 4295 would leave.
        draw = (state.key[0] * 1_000_003 + round_ * 101 + index) % 2**32
        reply = self._model.reply(messages, draw=draw)
        # Half of a surrogate pair could be neither hashed nor stored.
        text = reply.text.encode("utf-8", "replace").decode()
        code, why = code_of(text), said_before(text)
        flags = state.candidate.flags
        refused = (
            f"the answer was cut off after {len(text)} characters"
            if code is None and reply.finish == "length"
            else "no C block in the answer"
            if code is None
            else f"{len(code)} characters are more than {MOST_SOURCE}"
            if len(code) > MOST_SOURCE
            else ""
        )
        source = state.candidate.source if refused or code is None else code
        found = state.observation.findings if state.observation else ()
        tools = tuple(dict.fromkeys(one.tool for one in found))
        return Proposal(source, flags, move, why, "answer", tools, refused)


def code_of(text: str) -> str | None:
    """The last fenced block that is C, or has no language; None where there is none."""
    blocks = [
        code for language, code in _FENCE.findall(text) if language.lower() in ("", "c", "cpp", "c++", "h")
    ]
    return blocks[-1] if blocks and blocks[-1].strip() else None


def said_before(text: str) -> str:
    """What stands before the first block, in one line."""
    return " ".join(text.partition("```")[0].split())[:_CAUSE]


def question(state: WriterState) -> str:
    """All that the model is told, but for the system's words."""
    parts = [
        f"The entry is `{state.entry}`. Compiled with gcc {' '.join(state.candidate.flags)}.",
        f"```c\n{state.candidate.source.rstrip()}\n```",
        _outcome(state),
    ]
    if state.observation is not None:
        parts.append(_measured(state.observation))
    children = [one for one in state.trials if one.parent == state.number][-_TRIES:]
    if children:
        parts.append("Tried from this version already:\n" + "\n".join(map(_line, children)))
    if state.notes:
        parts.append("Known from this search:\n" + "\n".join(f"- {one}" for one in state.notes[-_NOTES:]))
    return "\n\n".join(parts)


def _outcome(state: WriterState) -> str:
    done = state.evaluated
    if not done.ok:
        stage = {"build": "It does not compile", "run": "It does not run", "cheat": "It was refused"}
        stage["untried"] = "It was not tried"
        return f"{stage.get(done.stage, 'Its result is wrong')}: {done.why[:_CAUSE]}\nMend it."
    if state.number == 0:
        return "It is right; it is the original."
    speed = "" if done.speedup is None else f", {done.speedup:.3g} times as fast as the original"
    return f"It is right{speed}."


def _measured(seen: Observation) -> str:
    """Findings as sentences with what they cite, else counters, else that nothing was found."""
    if seen.findings:
        lines = []
        for one in seen.findings:
            lines.append(f"- {one.severity}: {one.sentence}")
            lines += [f"    {cite}" for cite in one.evidence]
        return "Found by profiling:\n" + "\n".join(lines)
    if seen.counters:
        shown = sorted(seen.counters.items())[:_COUNTERS]
        return "Profiler counters:\n" + "\n".join(f"{name} = {value:.6g}" for name, value in shown)
    return "Profiling found nothing to say."


def _line(one: Trial) -> str:
    how = (
        f"{one.gain:.3g} times this version's speed"
        if one.gain is not None
        else "right, not timed"
        if one.ok
        else f"failed: {one.why[:_CAUSE]}"
    )
    return f"- {one.move}: {how}"
