"""Which decoder a model gets: each is compared with the model's own forward pass before it is trusted.

Architectures differ in ways that no interface shows: a mask that an attention function is not told of,
positions counted from a cache, a scaling that asks for the length of the batch. So nothing is believed from
a name. When a model is opened a few random sequences are drawn and scored as a fork would do it (a prefix
shared by branches, others of unequal lengths, one longer than every window that the config names), and the
log-probs are held against plain forward passes over each sequence alone. The distribution of a token is by
definition what the model gives behind the tokens before it, and no others.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch

from refork.decoding.backbone import Backbone, unwrapped
from refork.decoding.loop import BranchDecoder, Decoder
from refork.decoding.own import OwnDecoder, OwnForward
from refork.decoding.score import score
from refork.errors import BadInput, CannotDo
from refork.sampling.noise import NoiseKey
from refork.sampling.settings import Sampling
from refork.settings import home
from refork.types import FloatArray, IntArray

Forward = Literal["auto", "packed", "own"]
Decoding = Literal["packed", "cached", "anew"]

_MEANING: Final[dict[Decoding, str]] = {
    "packed": "packed branches",
    "cached": "the model's own forward pass, one branch at a time",
    "anew": "the model's own forward pass, over the whole context for every token",
}
_NAME: Final[dict[Decoding, str]] = {
    "packed": "packed branches",
    "cached": "continuations of the cache",
    "anew": "repeated passes",
}
#: Numbers of a config from which on a model may behave in another way.
_BORDER = re.compile(r"window|chunk|original_max_position|floor_scale|index_topk|stride|compress|block_size")
_SHARE: Final = {torch.float32: 1e-4, torch.float64: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.04}
"""How much of the range of a model's log-probs two right computations may differ by, by dtype."""
_LEAST = 72  # tokens: more than one block of the packed decoder
_STEPS = 5
_BEYOND = 6
_LONGEST = {"cpu": 2304}
_WORK = {"cpu": 2e12}
"""Longest sequence that is compared, and the multiplications that one pass may take, by device."""
_ANYWHERE_LONGEST, _ANYWHERE_WORK = 8448, 2e14
_KEEP_FROM = 1.0  # seconds that a comparison must have taken to be kept for the next process


@dataclass(frozen=True, slots=True)
class DecodingPath:
    """How a model is decoded, and what was compared to decide that.

    ``why`` says why it is not packed. ``difference`` is the largest one found, in nats, ``compared`` the
    length of the longest sequence; ``unseen`` are numbers of the config that lie beyond it. ``steady`` as in
    :class:`OwnForward`.
    """

    path: Decoding
    why: str | None = None
    difference: float = 0.0
    compared: int = 0
    unseen: dict[str, int] = field(default_factory=dict)
    steady: int | None = None

    @property
    def slow(self) -> bool:
        """Whether branches are not packed."""
        return self.path != "packed"

    @property
    def describe(self) -> str:
        """One sentence about a slow one."""
        return f"{_MEANING[self.path]}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """What a card says of it."""
        found: dict[str, Any] = {"forward": _MEANING[self.path]}
        if self.why is not None:
            found["not packed"] = self.why
        if self.unseen:
            names = ", ".join(f"{name} {value}" for name, value in sorted(self.unseen.items()))
            found["not compared"] = f"beyond {self.compared} tokens ({names})"
        return found


def open_decoder(
    model: Any, memory: int | None = None, forward: Forward = "auto"
) -> tuple[Decoder[Any], DecodingPath]:
    """The decoder of a model: packed where that agrees with its own forward pass, else the general one.

    ``packed`` refuses a model with which it does not agree, ``own`` takes the general one in any case.

    Raises:
        BadInput: an unknown ``forward``.
        CannotDo: an adapter of virtual tokens; a model that cannot run on token ids alone or is not causal;
            packed branches are asked for and differ.
    """
    if forward not in ("auto", "packed", "own"):
        raise BadInput(f"forward is {forward!r}", hint="one of auto, packed, own")
    inner = unwrapped(model)
    name = _name(inner, forward)
    found, fresh = _KNOWN.get(name) or _recall(name), False
    decoder: Decoder[Any] | None = None
    if found is None:
        began = time.monotonic()
        decoder, found = _Trial(inner, model, memory).choose(forward)
        fresh = time.monotonic() - began > _KEEP_FROM
    # A verdict on logits that were not finite compared nothing, and the next weights may be sound.
    if found.compared:
        _KNOWN[name] = found
    if fresh and found.compared:
        _keep(name, found)
    return decoder or _made(found, model, memory), found


def _made(found: DecodingPath, model: Any, memory: int | None) -> Decoder[Any]:
    if found.path == "packed":
        return BranchDecoder(Backbone(model), memory)
    return OwnDecoder(OwnForward(model, cached=found.path == "cached", steady=found.steady), memory)


class _Trial:
    """One comparison of a model's decoders with its forward pass."""

    def __init__(self, inner: Any, model: Any, memory: int | None) -> None:
        self.inner, self.model, self.memory = inner, model, memory
        self.own = OwnForward(model, cached=False)
        self.kind = type(inner).__name__
        borders = _borders(inner.config)
        longest = _room(inner, self.own)
        within = [value for value in borders.values() if value + _BEYOND <= longest]
        self.borders = sorted(set(within))
        self.length = min(longest, max([_LEAST, *(value + _BEYOND for value in within)]))
        context = self.own.context
        self.unseen = {
            key: value
            for key, value in borders.items()
            if value + _BEYOND > longest and (context is None or value < context)
        }
        self.prefixes = _prefixes(inner.config, self.own.vocabulary, self.length)
        self._range = 0.0
        self._known: dict[bytes, FloatArray] = {}

    def choose(self, forward: Forward) -> tuple[Decoder[Any], DecodingPath]:
        """The first decoder that agrees, fastest first."""
        if not self._settle():
            # Said where it is drawn from.
            return self._unseen()
        why: str | None = "asked for" if forward == "own" else None
        # The last one: a selection of earlier tokens may fall otherwise in a longer pass, at places that
        # _settle does not look at. Then each place is read by a pass of its own, as the distribution means.
        order: list[tuple[Decoding, int | None]] = [(path, self.own.steady) for path in ("cached", "anew")]
        order += [("anew", 1)] if self.own.steady is None else []
        order = order if forward == "own" else [("packed", self.own.steady), *order]
        for path, steady in order:
            if steady != self.own.steady:
                self.own.steady = steady
                self._known.clear()
            opening = DecodingPath(path, why, 0.0, self.length, self.unseen, steady)
            try:
                decoder = _made(opening, self.model, self.memory)
                difference = self._differs(decoder)
            except Exception as error:  # whatever a model's code may raise
                wrong = _error_text(error)
            else:
                wrong = f"{_NAME[path]} of {self.kind} give log-probs {difference:.2g} nats from its own"
                if difference <= self._allowed:
                    return decoder, replace(opening, difference=difference)
            if path == "packed":
                why = wrong
            if forward == "packed":
                raise CannotDo(wrong, hint="forward=auto takes the model's own forward pass, which is slow")
        raise CannotDo(wrong)

    def _unseen(self) -> tuple[Decoder[Any], DecodingPath]:
        """A decoder of a model whose logits are not finite, so that nothing can be compared."""
        try:
            return BranchDecoder(Backbone(self.model), self.memory), DecodingPath("packed")
        except Exception as error:  # whatever a model's code may raise
            opening = DecodingPath("anew", _error_text(error))
            return _made(opening, self.model, self.memory), opening

    def _settle(self) -> bool:
        """Up to which length a longer pass changes nothing before its end; refuses what cannot run.

        Whether the logits are finite.
        """
        base = torch.from_numpy(self.prefixes[2].astype(np.int64)).to(self.own.device)
        few = min(4, len(base) - 1)
        try:
            short = self.own.read(base[: few + 1])
        except Exception as error:
            raise CannotDo(f"{self.kind} does not run on token ids alone: {_error_text(error)}") from error
        if not bool(torch.isfinite(short.amax(dim=-1)).all()):
            return False
        self._range = _range(torch.log_softmax(short.float(), dim=-1).double().cpu().numpy())
        lengths = [border for border in self.borders if few < border < len(base)]
        steady = 0
        for length in [*lengths, len(base)]:
            if self._unlike(
                self.own.read(base[:length], torch.tensor([few], device=base.device)), short[few:]
            ):
                break
            steady = length
        if not steady:
            raise CannotDo(
                f"{self.kind} is no causal model: its logits change with the tokens behind them",
                hint="is it an encoder whose config lacks is_decoder=True?",
            )
        if steady < len(base):
            self.own.steady = steady
        return True

    def _unlike(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        """Whether rows of logits are further apart than rounding."""
        one, two = (torch.log_softmax(x.float(), dim=-1).double().cpu().numpy() for x in (left, right))
        return bool(_apart(one, two).max() > self._allowed)

    @property
    def _allowed(self) -> float:
        """How far two right computations may be apart, in nats."""
        return _SHARE.get(self.own.dtype, _SHARE[torch.bfloat16]) * self._range

    def _differs(self, decoder: Decoder[Any]) -> float:
        """How far a decoder's log-probs are from the model's, in nats."""
        noise = [NoiseKey(0, 0, i) for i in range(len(self.prefixes))]
        drawn = list(decoder.sample(self.prefixes, noise, Sampling(max_tokens=_STEPS)))
        whole = [np.concatenate([self.prefixes[item.index], item.tokens]).astype(np.int32) for item in drawn]
        scored = score(decoder, whole)
        parts: list[FloatArray] = []
        for item, tokens, scores in zip(drawn, whole, scored, strict=True):
            truth = self._truth(tokens)
            parts += [_apart(item.logprobs_t1, truth[len(tokens) - len(item.tokens) - 1 :])]
            parts += list(self._cut(_apart(scores, truth)))
        middle = self.own.dtype in (torch.float16, torch.bfloat16)
        # In half precision one place may be far off by chance (a router that tips); a whole stretch is not.
        return max(float(np.median(part) if middle else part.max()) for part in parts if len(part))

    def _cut(self, values: FloatArray) -> Iterator[FloatArray]:
        """Values of a sequence between the borders."""
        yield from np.split(values, [border for border in self.borders if border < len(values)])

    def _truth(self, tokens: IntArray) -> FloatArray:
        """Log-probs [n - 1] by plain passes over a sequence alone."""
        name = tokens.tobytes()
        if name not in self._known:
            [self._known[name]] = score(OwnDecoder(self.own, self.memory), [tokens])
        return self._known[name]


def _prefixes(config: Any, vocabulary: int, length: int) -> list[IntArray]:
    """Short ones, one shared by two branches, and one that parts from it; random tokens, always the same."""
    rng = np.random.default_rng(27)
    special = {value for key, value in _numbers(config) if key.endswith(("_token_id", "_token_index"))}
    usable = np.array([i for i in range(vocabulary) if i not in special] or [0], dtype=np.int32)
    base = rng.choice(usable, length)
    parted = np.concatenate([base[: max(1, length // 2)], rng.choice(usable, max(1, min(9, length // 2)))])
    return [base[: min(5, length)], rng.choice(usable, min(13, length)), base, base, parted]


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Every whole number of a config with its name, however deep."""

    def walk(name: str, value: Any) -> Iterator[tuple[str, int]]:
        if isinstance(value, bool):
            return
        if isinstance(value, int):
            yield name, value
        elif isinstance(value, dict):
            for key, inside in value.items():
                yield from walk(str(key), inside)
        elif isinstance(value, (list, tuple)):
            for inside in value:
                yield from walk(name, inside)

    yield from walk("", config.get_text_config().to_dict())


def _borders(config: Any) -> dict[str, int]:
    """Lengths that a config names."""
    return {name: value for name, value in _numbers(config) if value > 1 and _BORDER.search(name)}


def _room(model: Any, own: OwnForward) -> int:
    """Tokens of the longest sequence that is compared."""
    weights = max(sum(p.numel() for p in model.parameters()), 1)
    kind = own.device.type
    most = min(_LONGEST.get(kind, _ANYWHERE_LONGEST), int(_WORK.get(kind, _ANYWHERE_WORK) / (2 * weights)))
    room = max(most, _LEAST)
    return room if own.context is None else max(2, min(room, own.context - _STEPS))


def _apart(left: Any, right: Any) -> FloatArray:
    """Distances; two that are both minus infinity are equal, and what is not a number is far off."""
    one, two = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.where(one == two, 0.0, np.abs(one - two)), nan=np.inf)


def _range(logs: Any) -> float:
    finite = np.asarray(logs)[np.isfinite(logs)]
    return float(np.ptp(finite)) if len(finite) else 0.0


def _error_text(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0][:200]
    return error.what if isinstance(error, CannotDo) else f"{type(error).__name__}: {first}"


# -- verdicts are kept: of this process, and on disk where they took long ---------------------------

_KNOWN: dict[str, DecodingPath] = {}


def _name(model: Any, forward: Forward) -> str:
    """A digest of all that a verdict may depend on, but for the numbers in the weights."""
    import transformers

    config = model.config.to_dict()
    # Where a model lies says nothing about how it is computed.
    for key in ("_name_or_path", "name_or_path"):
        config.pop(key, None)
    shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in model.named_parameters()]
    device = next(model.parameters()).device.type
    parts = [type(model).__name__, type(model).__module__, config, shapes, device, forward]
    parts += [transformers.__version__, torch.__version__, _code()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _code() -> str:
    """A digest of this package's source: a verdict is of the decoder that it was made with."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _folder() -> Path:
    """Where verdicts are kept: REFORK_HOME, else ``~/.cache/refork``, and there ``openings``."""
    return home() / "openings"


def _recall(name: str) -> DecodingPath | None:
    try:
        return DecodingPath(**json.loads((_folder() / f"{name}.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _keep(name: str, found: DecodingPath) -> None:
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Another process may write the same verdict now.
        unfinished = folder / f"{name}.{os.getpid()}.tmp"
        unfinished.write_text(json.dumps(asdict(found)))
        unfinished.replace(folder / f"{name}.json")
    except OSError:
        return  # compared again next time
