"""What a drafter learns from: answers of the target to prompts, and its hidden states on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, DiskFull, Mismatch
from refork.jsonl import json_objects, read_utf8
from refork.plain import content_hash
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import FloatArray, IntArray, Json, Message, token_array
from refork_methods.speculate.config import DraftConfig

# What a drafter learns from: prompts that the target answers itself, with the branching decoder.
#
# A line of a prompts file is one of
#
#     {"text": "..."}                        continued as it stands, without a chat template
#     {"turns": ["...", "..."]}              user turns, each answered in turn
#     {"messages": [{"role": ..., ...}]}     a conversation; what its assistant said is said anew by the
# target

_CHUNK: Final = 64
"""Conversations that are answered together and written together."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A token sequence and which of its tokens the target said itself: those are learned.

    ``greedy``: they were said at temperature 0.
    """

    tokens: IntArray
    supervised: NDArray[np.bool_]
    greedy: bool = False

    def __post_init__(self) -> None:
        if self.tokens.shape != self.supervised.shape or self.tokens.ndim != 1:
            raise BadInput(
                f"{self.tokens.shape} tokens with a mask of {self.supervised.shape}", where="training data"
            )


@final
@dataclass(frozen=True, slots=True)
class Prompt:
    """What the target is asked: a ``text`` to go on from, or ``stages`` of messages, each then answered."""

    text: str | None = None
    stages: tuple[tuple[Message, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.text and not self.stages:
            raise BadInput(
                "this prompt says nothing", hint='{"text": ...}, {"turns": [...]} or {"messages": [...]}'
            )

    @property
    def answers(self) -> int:
        """How many times the target speaks."""
        return max(1, len(self.stages))

    @property
    def words(self) -> str:
        """All that is asked, as one text."""
        return self.text or "\n".join(str(m.get("content") or "") for stage in self.stages for m in stage)

    def to_json(self) -> Json:
        """Plain fields."""
        return {"text": self.text, "stages": [list(stage) for stage in self.stages]}


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a JSON-lines file.

    Raises:
        BadInput: a file that cannot be read, a line that is no prompt (it is named), or no prompt at all.
    """
    # Not splitlines: it also cuts at separators that may stand unescaped inside a JSON string.
    lines = read_utf8(path).split("\n")
    found = tuple(parse_prompt(body, at) for at, body in json_objects(lines, str(path)))
    if not found:
        raise BadInput("there is no prompt", where=str(path))
    return found


def parse_prompt(body: Json, where: str) -> Prompt:
    """One line as a prompt; raises BadInput naming ``where``."""
    given = [name for name in ("text", "turns", "messages") if body.get(name)]
    if len(given) != 1:
        raise BadInput(
            "a prompt has one of text, turns and messages", where=where, hint='{"turns": ["What is 2 + 2?"]}'
        )
    value = body[given[0]]
    if given[0] == "text":
        if not isinstance(value, str):
            raise BadInput("the text is not a string", where=where)
        return Prompt(text=value)
    if not isinstance(value, list):
        raise BadInput(f"{given[0]} is not a list", where=where)
    if given[0] == "turns":
        if not all(isinstance(turn, str) for turn in value):
            raise BadInput("a turn is not a string", where=where)
        return Prompt(stages=tuple(({"role": "user", "content": turn},) for turn in value))
    return Prompt(stages=_stages(value, where))


def _stages(messages: list[Any], where: str) -> tuple[tuple[Message, ...], ...]:
    """The messages between those of the assistant."""
    stages: list[list[Message]] = [[]]
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadInput("a message has no role", where=where)
        if message["role"] == "assistant":
            stages.append([])
        else:
            stages[-1].append(message)
    found = tuple(tuple(stage) for stage in stages if stage)
    if not found:
        raise BadInput("nobody but the assistant says anything", where=where)
    return found


def own_settings(target: LocalPolicy, max_tokens: int = 256) -> Sampling:
    """How the target's makers sample it (its generation config); else temperature 1, no filter."""
    told = getattr(target.decoder.backbone.model, "generation_config", None)
    if told is None or not getattr(told, "do_sample", False):
        return Sampling(max_tokens=max_tokens)
    top_k = getattr(told, "top_k", None)
    top_p = getattr(told, "top_p", None)
    min_p = getattr(told, "min_p", None)
    repetition = getattr(told, "repetition_penalty", None)
    return Sampling(
        temperature=float(getattr(told, "temperature", None) or 1.0),
        top_k=int(top_k) if top_k else None,
        top_p=float(top_p) if top_p and top_p < 1 else None,
        min_p=float(min_p) if min_p else None,
        repetition_penalty=float(repetition) if repetition and repetition != 1 else None,
        max_tokens=max_tokens,
    )


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """Examples, and how many conversations were left out since they fill the target's context."""

    examples: tuple[Example, ...]
    too_long: int


def answers(
    target: LocalPolicy,
    prompts: Sequence[Prompt],
    settings: Sampling | None = None,
    *,
    samples: int = 1,
    seed: int = 0,
    path: Path | None = None,
    progress: Progress = silent,
) -> Answered:
    """The target's own answers to prompts, ``samples`` to each, as examples.

    With ``path`` they are kept there as JSON lines; the same call again goes on behind the last whole line.
    Noise is addressed by prompt and sample, so the answers do not depend on where a call was stopped.

    Raises:
        BadInput: fewer than one sample, no prompt.
        Mismatch: the file holds answers of another target, other prompts, settings or another seed.
        DiskFull: the file cannot be written.

    Source: arXiv:2607.05147: text is regenerated by the target with its own sampling settings.
    """
    if samples < 1 or not prompts:
        raise BadInput(f"{samples} answers to {len(prompts)} prompts are none", where="training data")
    sampling = settings or own_settings(target)
    head = _header(target, prompts, sampling, samples, seed)
    lines = [] if path is None else _stored_lines(path, head)
    total = len(prompts) * samples
    said = sum(_supervised_tokens(line) for line in lines)
    progress("answering prompts", len(lines), total, tokens=said)
    while len(lines) < total:
        numbers = range(len(lines), min(len(lines) + _CHUNK, total))
        new = _answer(
            target, [(prompts[n // samples], n // samples, n % samples) for n in numbers], sampling, seed
        )
        if path is not None:
            _append(path, new)
        lines += new
        said += sum(_supervised_tokens(line) for line in new)
        progress("answering prompts", len(lines), total, tokens=said)
    greedy = sampling.temperature == 0.0
    examples = [_example(part, greedy) for line in lines for part in line["parts"]]
    return Answered(tuple(examples), sum(bool(line.get("too_long")) for line in lines))


def data_digest(examples: Sequence[Example]) -> str:
    """Digest of sequences, masks and which of them are greedy answers, 32 hex digits."""
    mixed = hashlib.blake2b(digest_size=16)
    for example in examples:
        # The length first: two ways to cut one stream of tokens must not give one digest.
        mixed.update(len(example.tokens).to_bytes(8, "little"))
        mixed.update(np.ascontiguousarray(example.tokens, dtype="<i4").tobytes())
        mixed.update(np.packbits(example.supervised).tobytes())
    greedy = np.array([example.greedy for example in examples], dtype=np.bool_)
    # Drafts of greedy answers are counted apart. Data without any keeps the digest it had before they were.
    if greedy.any():
        mixed.update(b"greedy" + np.packbits(greedy).tobytes())
    return mixed.hexdigest()


def _answer(
    target: LocalPolicy, asked: Sequence[tuple[Prompt, int, int]], sampling: Sampling, seed: int
) -> list[Json]:
    """Lines of some conversations: all of them take their first turns together, then their second ones."""
    talks = [_Dialogue(target, prompt) for prompt, _, _ in asked]
    for turn in range(max(prompt.answers for prompt, _, _ in asked)):
        open_ = [i for i, (prompt, _, _) in enumerate(asked) if turn < prompt.answers]
        ready = [i for i in open_ if talks[i].open(turn)]
        requests = [
            Request(
                token_array(talks[i].tokens),
                NoiseKey(seed, stream_of("draft answers", asked[i][1]), asked[i][2], turn),
            )
            for i in ready
        ]
        for i, item in zip(ready, sample_all(target, requests, sampling) if requests else (), strict=True):
            talks[i].hear(item.tokens, item.text)
    return [talk.line() for talk in talks]


@final
class _Dialogue:
    """One conversation as it grows; a template that rewrites what was said begins a new part."""

    def __init__(self, target: LocalPolicy, prompt: Prompt) -> None:
        self._target, self._prompt = target, prompt
        self._history: list[Message] = []
        self.tokens: list[int] = []
        self._mask: list[bool] = []
        self._parts: list[Json] = []
        self._too_long = False

    def open(self, turn: int) -> bool:
        """Put what comes before the target's turn into the context; whether there is room to speak."""
        if self._too_long:
            return False
        if self._prompt.text is not None:
            self._add(self._target.encode(self._prompt.text).tolist(), False)
        else:
            new = self._prompt.stages[turn]
            made = self._target.render(self._history, token_array(self.tokens), new)
            # Earlier answers in the new context are not supervised again: the part closed here has them.
            if made.rewrites:
                self._close()
            self._add(made.tokens.tolist(), False)
            self._history += new
        limit = self._target.decoder.backbone.context
        self._too_long = not self.tokens or (limit is not None and len(self.tokens) + 1 > limit)
        return not self._too_long

    def hear(self, tokens: IntArray, text: str) -> None:
        """What the target said."""
        self._add(tokens.tolist(), True)
        self._history.append({"role": "assistant", "content": text})

    def _add(self, tokens: list[int], said: bool) -> None:
        self.tokens += tokens
        self._mask += [said] * len(tokens)

    def _close(self) -> None:
        if any(self._mask):
            spans = _spans(np.array(self._mask, dtype=bool))
            self._parts.append({"tokens": self.tokens, "supervised": spans})
        self.tokens, self._mask = [], []

    def line(self) -> Json:
        """The conversation as one line of the file."""
        self._close()
        return {"parts": self._parts, **({"too_long": True} if self._too_long else {})}


def _spans(mask: NDArray[np.bool_]) -> list[list[int]]:
    """Where a mask is true, as [from, to)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [[int(a), int(b)] for a, b in edges.reshape(-1, 2)]


def _example(part: Json, greedy: bool) -> Example:
    tokens = token_array(part["tokens"])
    mask = np.zeros(len(tokens), dtype=bool)
    for low, high in part["supervised"]:
        mask[low:high] = True
    return Example(tokens, mask, greedy)


def _supervised_tokens(line: Json) -> int:
    return sum(high - low for part in line["parts"] for low, high in part["supervised"])


def _header(
    target: LocalPolicy, prompts: Sequence[Prompt], sampling: Sampling, samples: int, seed: int
) -> Json:
    return {
        "answers": 1,
        "target": target.card.weights,
        "tokenizer": target.card.tokenizer,
        "prompts": content_hash([prompt.to_json() for prompt in prompts]),
        "settings": sampling.to_json(),
        "samples": samples,
        "seed": seed,
    }


def _stored_lines(path: Path, head: Json) -> list[Json]:
    """The whole lines of a file of answers, begun where there is none; a torn last line is dropped."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        # A header that a crash cut short is none: the file begins anew, if it is ours at all.
        if not whole and (json.dumps(head) + "\n").startswith(text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return []
        if whole and whole != text:
            path.write_text(whole, encoding="utf-8")
    except OSError as error:
        raise DiskFull(f"the answers could not be kept: {error}", where=str(path)) from error
    lines = [body for _, body in json_objects(whole.split("\n"), str(path))]
    if not lines or lines[0] != head:
        differ = sorted(k for k in head if not lines or lines[0].get(k) != head[k])
        raise Mismatch(
            f"this file holds other answers: {', '.join(differ)} differ",
            where=str(path),
            hint="use the same target, prompts and settings to resume, or another folder",
        )
    return lines[1:]


def _append(path: Path, lines: Sequence[Json]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    except OSError as error:
        raise DiskFull(f"the answers could not be kept: {error}", where=str(path)) from error


# Hidden states of the target that training reads: computed again for every step, or kept on disk.
#
# Of every token the context layers are read, and the last hidden state, from which the target's distribution
# is made where it is needed (hidden states travel, logits do not).

Precision = Literal["float32", "float16"]


class Features(Protocol):
    """Where the hidden states of examples come from."""

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States [tokens, m + 1, width] of some examples: the context layers, then the last one."""
        ...


@final
class Recomputed:
    """States from a fresh pass of the target, each time they are asked for."""

    def __init__(self, target: LocalPolicy, examples: Sequence[Example], config: DraftConfig) -> None:
        self._target, self._examples = target, examples
        self._layers = (*config.target_layers, config.target_depth)

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States of some examples."""
        found = self._target.hidden_states([self._examples[n].tokens for n in numbers], self._layers)
        return [states.transpose(1, 0, 2) for states in found]


@final
class Cached:
    """States from files, one an example, each written the first time it is asked for.

    The folder's name holds what they are of, so states of other examples, layers or weights are never met.
    float16 halves the files and rounds states to three digits, and the target's distributions with them.
    """

    def __init__(
        self,
        target: LocalPolicy,
        examples: Sequence[Example],
        config: DraftConfig,
        folder: Path,
        precision: Precision = "float32",
    ) -> None:
        self._fresh, self._precision = Recomputed(target, examples, config), precision
        layers = [*config.target_layers, config.target_depth]
        card = target.card
        name = content_hash([card.weights, card.tokenizer, layers, precision, data_digest(examples)])
        self._folder = folder / name[:16]

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States of some examples.

        Raises:
            BadInput: states that float16 cannot hold.
            DiskFull: a file cannot be written.
        """
        known = {n: self._read(n) for n in numbers}
        missing = [n for n, states in known.items() if states is None]
        if missing:
            for n, states in zip(missing, self._fresh.of(missing), strict=True):
                known[n] = self._keep(n, states)
        return [np.asarray(known[n], dtype=np.float32) for n in numbers]

    def _file(self, n: int) -> Path:
        return self._folder / f"{n // 1000:04d}" / f"{n:07d}.npy"

    def _read(self, n: int) -> NDArray[np.floating] | None:
        """What is kept of an example; None where nothing is, or a file that a crash has damaged."""
        try:
            found: NDArray[np.floating] = np.load(self._file(n), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return found

    def _keep(self, n: int, states: FloatArray) -> NDArray[np.floating]:
        most = float(np.finfo(self._precision).max)
        if self._precision == "float16" and float(np.abs(states).max(initial=0.0)) > most:
            raise BadInput(
                "these hidden states are too large for float16", where="feature cache", hint="keep float32"
            )
        kept = states.astype(self._precision)
        file = self._file(n)
        part = file.with_suffix(".part")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as out:
                np.save(out, kept, allow_pickle=False)
            part.replace(file)
        except OSError as error:
            raise DiskFull(f"the features could not be kept: {error}", where=str(self._folder)) from error
        return kept


def feature_bytes(tokens: int, config: DraftConfig, precision: Precision = "float32") -> int:
    """How much the features of so many tokens take on disk."""
    return tokens * (len(config.target_layers) + 1) * config.hidden * np.dtype(precision).itemsize
