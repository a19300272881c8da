"""Recipes: what a run will do, as one validated file with a digest."""

from __future__ import annotations

import copy
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from refork.errors import BadInput, Mismatch
from refork.policies.base import Sampling
from refork.sampling.grammar import Grammar
from refork.settings import PREFIX, from_toml, variables
from refork.types import Json


class RecipePart(BaseModel):
    """Base settings of every recipe part: no unknown keys, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tasks(RecipePart):
    """Which tasks of the world."""

    #: Which part of the world's tasks.
    split: Literal["train", "held-out"] = "held-out"
    #: How many tasks.
    count: int = Field(default=16, ge=1)
    #: Which of them: another seed, other tasks.
    seed: int = 0


#: Settings that came after recipes had digests.
_LATER = frozenset({"grammar", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"})


class SamplingPart(RecipePart):
    """How tokens are drawn; the fields of :class:`Sampling` that a recipe sets."""

    #: 0 is greedy; 1 the model's own distribution.
    temperature: float = Field(default=1.0, ge=0)
    #: Only the likeliest so many tokens.
    top_k: int | None = Field(default=None, ge=1)
    #: Only the likeliest tokens that together have this probability.
    top_p: float | None = Field(default=None, gt=0, le=1)
    #: Tokens of a turn at most.
    max_tokens: int = Field(default=64, ge=1)
    #: Texts at which a turn ends.
    stop: tuple[str, ...] = ()
    #: How noise chooses a token: by the inverse distribution function, or by Gumbel noise.
    coupling: Literal["inverse", "gumbel"] = "inverse"
    #: Record the entropy over so many likeliest tokens.
    entropy_top_k: int | None = None
    #: Only tokens with at least this share of the likeliest one's probability.
    min_p: float | None = Field(default=None, ge=0, le=1)
    #: Divides the scores of tokens that stand in the context.
    repetition_penalty: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    #: Taken off the score of each generated token.
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    #: Taken off a score for each time that its token was generated.
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)

    @model_serializer(mode="wrap")
    def _plain(self, dump: SerializerFunctionWrapHandler) -> Json:
        # Recipes without these keep the digests that they had before there were any.
        told: Json = dump(self)
        return {key: value for key, value in told.items() if key not in _LATER or value is not None}

    def sampling(self) -> Sampling:
        """The value object that policies take."""
        return Sampling(**self.model_dump())


class TurnSampling(SamplingPart):
    """A distribution that may hold every turn to a form too: ``grammar`` is a kind and its text, as recorded.

    Training takes a :class:`SamplingPart`: its gradients are of the model's own chances.
    """

    #: Form of every turn: { kind = "regex", text = "..." }; json_schema and lark are others.
    grammar: Json | None = None

    @field_validator("grammar")
    @classmethod
    def _is_one(cls, value: Json | None) -> Json | None:
        try:
            return None if value is None else Grammar.from_json(value).to_json()
        except BadInput as error:
            raise ValueError(error.what) from error

    def sampling(self) -> Sampling:
        """The value object that policies take."""
        grammar = None if self.grammar is None else Grammar.from_json(self.grammar)
        return Sampling(**{**self.model_dump(), "grammar": grammar})


class Selection(RecipePart):
    """How a growing tree chooses the points it forks; which settings count depends on ``kind``.

    ``kind`` is a selector's name. The settings that stand here are of those in ``OWN``; of any other, and
    beyond them, they are ``options``.
    """

    OWN: ClassVar[tuple[str, ...]] = ("independent", "random", "surprisal", "uucb")

    #: A selector's name.
    kind: str = "independent"
    #: Weight of exploration (uucb).
    c: float = 0.5
    #: Weight of uncertainty (uucb).
    entropy_coef: float = 1.0
    #: What a point is worth: its win rate, or how mixed its outcomes are (uucb).
    value: Literal["win_rate", "mixed"] = "win_rate"
    #: Uncertainty: the entropy, what the next draw is expected to cover, or the chance of a new token
    #: (uucb).
    entropy: Literal["plain", "coverage", "unseen"] = "plain"
    #: The bound of uucb, or the exact posterior gain of a mixed group.
    score: Literal["uucb", "mixed_gain"] = "uucb"
    #: Divide the score by the expected tokens of the leaf (uucb).
    per_token: bool = False
    #: Nats that count as entropy 1; default: the largest among the candidates (uucb).
    scale: float | None = None
    #: Plain rollouts before the first choice.
    roots: int = Field(default=2, ge=1)
    #: Choices per round.
    at_once: int = Field(default=1, ge=1)
    #: Points per turn that may be chosen; -1 all, 0 the beginnings of turns only.
    inside: int | None = Field(default=None, ge=-1)
    #: Points that are chosen in a round (surprisal).
    top: int = Field(default=2, ge=1)
    #: Draws of each (surprisal).
    draws: int = Field(default=2, ge=1)
    #: Rounds of them (surprisal).
    rounds: int = Field(default=1, ge=1)
    #: Seed of ties and of random choices.
    seed: int = 0
    #: Start new rollouts while so many turns of others may still be missing.
    staleness: int | None = Field(default=None, ge=0)
    #: Move leaves between tasks after the first round.
    allocate: bool = False
    #: Allocate by what an earlier run's groups came to: its folder, or its allocator.json.
    allocator: str | None = None
    #: Settings of any other selector.
    options: dict[str, Any] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _plain(self, dump: SerializerFunctionWrapHandler) -> Json:
        # Recipes without options or an allocator keep the digests that they had before there were any.
        told: Json = dump(self)
        return {key: value for key, value in told.items() if key not in ("options", "allocator") or value}


class GrowRecipe(RecipePart):
    """Rollouts of a policy in a world over tasks: independent ones, or with ``selector`` a tree per task."""

    #: The world's name, e.g. household:2.
    world: str
    #: hf:DIR, organism:NAME, openai:URL#MODEL or scripted:NAME.
    policy: str
    #: Which tasks of the world.
    tasks: Tasks = Tasks()
    #: Rollouts of each task.
    draws: int = Field(default=8, ge=1)
    #: Address of the noise.
    seed: int = 0
    #: Turns of a rollout at most; default: the world's own limit.
    max_turns: int | None = Field(default=None, ge=1)
    #: How tokens are drawn.
    sampling: TurnSampling = TurnSampling()
    #: Grow trees instead: how points to fork are chosen.
    selector: Selection | None = None
    #: Leaves of each tree; default: draws.
    leaves: int | None = Field(default=None, ge=1)
    #: Instead: sampled tokens of each tree.
    budget_tokens: int | None = Field(default=None, ge=1)


R = TypeVar("R", bound=BaseModel)


def digest(recipe: BaseModel) -> str:
    """Sixteen hex digits that change with any setting."""
    body = json.dumps(recipe.model_dump(mode="json"), sort_keys=True)
    return hashlib.blake2b(body.encode(), digest_size=8).hexdigest()


@final
@dataclass(frozen=True, slots=True)
class RecipeText:
    """What a recipe file says, of what a run is; the command has taken its own options out of it."""

    file: Path
    data: Json


def resolve(
    kind: type[R],
    file: Path | RecipeText | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **given: Any,
) -> R:
    """A recipe from a TOML file, then ``REFORK_A__B`` variables, then ``a.b=c`` overrides, then ``given``.

    Raises BadInput naming the key, what it holds and what it may hold.
    """
    data: Json = {}
    if isinstance(file, RecipeText):
        # A copy: the overrides are written into it, and the command may read its own again.
        data, file = copy.deepcopy(file.data), file.file
    elif file is not None:
        data = read_toml(file)
    for name, text in variables(environment).items():
        path = name.removeprefix(PREFIX).lower().split("__")
        if path[0] in kind.model_fields:
            _put(data, path, from_toml(text), name)
    for item in overrides:
        key, sign, text = item.partition("=")
        if not sign:
            raise BadInput(f"--set {item!r} has no '='", hint="write --set tasks.count=32")
        _put(data, key.strip().split("."), from_toml(text), f"--set {key}")
    for key, value in given.items():
        if value is not None:
            data[key] = value
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        missing = first["type"] == "missing"
        raise BadInput(
            f"recipe key {place!r} is missing"
            if missing
            else f"recipe key {place!r}: {first['msg']} (it holds {first['input']!r})",
            where=str(file) if file else "recipe",
            hint=f"keys are {', '.join(kind.model_fields)}",
        ) from error


def read_toml(file: Path) -> Json:
    """A recipe file.

    Raises:
        BadInput: it is not there, or no TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput("there is no such recipe", where=str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the recipe is not TOML: {error}", where=str(file)) from error
    except OSError as error:
        raise BadInput(f"the recipe cannot be read: {error.strerror}", where=str(file)) from error


def _put(data: Json, path: Sequence[str], value: Any, where: str) -> None:
    for key in path[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise BadInput(f"{'.'.join(path)} goes through a plain value", where=where)
    data[path[-1]] = value


def open_folder(folder: Path, recipe: BaseModel) -> bool:
    """Make or reopen a run's folder; True where it resumes. Another recipe there is refused, keys named.

    A folder that holds nothing but a recipe holds no run: it was refused before it made anything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "recipe.json"
    now = recipe.model_dump(mode="json")
    if file.exists():
        before = json.loads(file.read_text())["recipe"]
        differ = sorted(_differences(before, now))
        if differ and any(one.name != file.name for one in folder.iterdir()):
            raise Mismatch(
                "this folder holds a run with another recipe; it differs in: " + "; ".join(differ),
                where=str(folder),
                hint="use the same settings to resume, or another --out for a new run",
            )
        if not differ:
            return True
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps({"digest": digest(recipe), "recipe": now}, indent=2) + "\n")
    temporary.replace(file)
    return False


def _differences(before: Json, now: Json, prefix: str = "") -> list[str]:
    found: list[str] = []
    for key in before.keys() | now.keys():
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} (was {old!r}, now {new!r})")
    return found
