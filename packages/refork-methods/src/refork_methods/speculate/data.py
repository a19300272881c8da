"""What a drafter learns from: answers of the target to prompts, and its hidden states on them."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, DiskFull, Mismatch
from refork.jsonl import json_objects
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
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"this file cannot be read: {error}", where=str(path)) from error
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
    """Digest of sequences and masks, 32 hex digits."""
    mixed = hashlib.blake2b(digest_size=16)
    for example in examples:
        mixed.update(len(example.tokens).to_bytes(8, "little"))
        mixed.update(np.ascontiguousarray(example.tokens, dtype="<i4").tobytes())
        mixed.update(np.packbits(example.supervised).tobytes())
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
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return []
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
    except OSError as error:
        raise DiskFull(f"the answers could not be kept: {error}", where=str(path)) from error
    lines = [body for _, body in json_objects(whole.splitlines(), str(path))]
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
# Of every token the context layers are read, and the last hidden state, from which the target's law is made
# where it is needed (hidden states travel, logits do not).

Precision = Literal["float32", "float16"]
_STATES: Final = "features.npy"
_ABOUT: Final = "features.json"


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
    """States from a memory-mapped file that was written once: all examples, one after the other."""

    def __init__(self, states: NDArray[np.floating], starts: NDArray[np.int64]) -> None:
        self._states, self._starts = states, starts

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States of some examples."""
        at = self._starts
        return [np.asarray(self._states[at[n] : at[n + 1]], dtype=np.float32) for n in numbers]


def cache_bytes(examples: Sequence[Example], config: DraftConfig, precision: Precision = "float32") -> int:
    """How large the file of :func:`cache_features` will be."""
    return feature_bytes(sum(len(e.tokens) for e in examples), config, precision)


def feature_bytes(tokens: int, config: DraftConfig, precision: Precision = "float32") -> int:
    """How much the features of so many tokens take."""
    return tokens * (len(config.target_layers) + 1) * config.hidden * np.dtype(precision).itemsize


def cache_features(
    target: LocalPolicy,
    examples: Sequence[Example],
    config: DraftConfig,
    folder: Path,
    precision: Precision = "float32",
    progress: Progress = silent,
) -> Cached:
    """The states of all examples in a file, written once; a stopped call goes on where it was.

    float16 halves the file and rounds states to three digits, and the target's laws with them.

    Raises:
        Mismatch: the folder holds states of other examples, another target or other layers.
        BadInput: states that float16 cannot hold, or an unknown precision.
        DiskFull: the file cannot be written.
    """
    if precision not in ("float32", "float16"):
        raise BadInput(f"precision {precision!r} is not known", hint="float32 or float16")
    starts = np.concatenate([[0], np.cumsum([len(e.tokens) for e in examples])]).astype(np.int64)
    about = _about(target, examples, config, precision)
    size = _readable(cache_bytes(examples, config, precision))
    try:
        done = _done(folder, about)
        states = _open(
            folder, (int(starts[-1]), len(config.target_layers) + 1, config.hidden), precision, done
        )
        fresh = Recomputed(target, examples, config)
        stage = f"caching features ({size})"
        progress(stage, done, len(examples))
        while done < len(examples):
            numbers = range(done, min(done + _CHUNK, len(examples)))
            for n, found in zip(numbers, fresh.of(numbers), strict=True):
                states[starts[n] : starts[n + 1]] = _narrowed(found, precision)
            states.flush()
            done = numbers.stop
            _note(folder, about | {"done": done})
            progress(stage, done, len(examples))
    except ValueError as error:
        raise BadInput(f"these features cannot be read: {error}", where=str(folder / _STATES)) from error
    except OSError as error:
        raise DiskFull(f"the features could not be kept: {error}", where=str(folder)) from error
    return Cached(np.load(folder / _STATES, mmap_mode="r"), starts)


def _narrowed(states: FloatArray, precision: Precision) -> NDArray[np.floating]:
    if precision == "float16" and float(np.abs(states).max(initial=0.0)) > float(np.finfo(np.float16).max):
        raise BadInput(
            "these hidden states are too large for float16", where="feature cache", hint="keep float32"
        )
    return cast("NDArray[np.floating]", states.astype(precision))


def _about(
    target: LocalPolicy, examples: Sequence[Example], config: DraftConfig, precision: Precision
) -> Json:
    return {
        "target": target.card.weights,
        "tokenizer": target.card.tokenizer,
        "layers": [*config.target_layers, config.target_depth],
        "precision": precision,
        "data": data_digest(examples),
    }


def _done(folder: Path, about: Json) -> int:
    """How many examples a folder holds already."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _ABOUT).exists() or not (folder / _STATES).exists():
        return 0
    try:
        kept = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        done = int(kept.pop("done"))
    except (ValueError, KeyError, AttributeError) as error:
        raise BadInput(f"this record cannot be read: {error}", where=str(folder / _ABOUT)) from error
    if kept != about:
        differ = sorted(k for k in about if kept.get(k) != about[k])
        raise Mismatch(
            f"this folder holds other features: {', '.join(differ)} differ",
            where=str(folder),
            hint="use another folder, or remove this one",
        )
    return done


def _open(folder: Path, shape: tuple[int, int, int], precision: Precision, done: int) -> np.memmap:
    if done:
        return np.lib.format.open_memmap(folder / _STATES, mode="r+")
    need, room = math.prod(shape) * np.dtype(precision).itemsize, shutil.disk_usage(folder).free
    if need > room:
        raise DiskFull(
            f"the features take {_readable(need)}, {_readable(room)} are free",
            where=str(folder),
            hint="recompute them for every step, use float16, or fewer prompts",
        )
    return np.lib.format.open_memmap(folder / _STATES, mode="w+", dtype=np.dtype(precision), shape=shape)


def _note(folder: Path, about: Json) -> None:
    part = folder / f".{_ABOUT}.part"
    part.write_text(json.dumps(about) + "\n", encoding="utf-8")
    part.replace(folder / _ABOUT)


def _readable(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
