"""What findings are worth downstream: the same tasks repaired with and without them, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, final, get_args

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.jsonl import json_objects, read_utf8
from refork.stats import Interval, Test, holm, mcnemar, paired_difference, wilcoxon
from refork.stats.results import is_binary
from refork.types import Json

#: What an arm's agents were handed. ``oracle``: made with the fix at hand.
Findings: TypeAlias = Literal["none", "all", "gated", "masked", "shuffled", "oracle"]
#: Arms that measure something and are nothing to deploy.
CONTROLS = ("masked", "shuffled", "oracle")


@final
@dataclass(frozen=True, slots=True)
class RepairRun:
    """One repair of one task: how it came out (0 to 1), and the tokens of repair and of the localizer.

    ``setting``: the repair agent and its host; tests are corrected over settings. None: not measured.
    ``error``: the rollout broke; it counts as not resolved and is shown.
    """

    task: str
    resolved: float
    setting: str = ""
    findings: Findings = "none"
    tokens: float | None = None
    localizer_tokens: float | None = None
    error: str | None = None

    @classmethod
    def from_json(cls, data: Json, where: str = "run") -> RepairRun:
        """A row: ``task`` (or ``instance_id``) and ``resolved`` at least. Raises BadInput."""
        task, resolved, error = (
            data.get("task", data.get("instance_id")),
            data.get("resolved"),
            data.get("error"),
        )
        if not isinstance(task, str) or not task:
            raise BadInput('a run names its "task"', where=where)
        if resolved is None and error is not None:
            resolved = 0.0
        if not isinstance(resolved, bool | int | float) or not 0 <= resolved <= 1:
            raise BadInput('"resolved" is true, false or a number from 0 to 1', where=where)
        findings = data.get("findings", "none")
        if findings not in get_args(Findings):
            raise BadInput(
                f"unknown findings {findings!r}", where=where, hint=f"one of {', '.join(get_args(Findings))}"
            )
        return cls(
            task,
            # A rollout that broke is not believed where it says that it resolved.
            0.0 if error is not None else float(resolved),
            str(data.get("setting", "")),
            findings,
            _tokens(data, "tokens", where),
            _tokens(data, "localizer_tokens", where),
            None if error is None else str(error),
        )

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


def read_runs(file: Path) -> list[RepairRun]:
    """Runs of a file of JSON lines. Raises BadInput with the line, or where there is none."""
    lines = read_utf8(file).split("\n")
    runs = [RepairRun.from_json(row, where) for where, row in json_objects(lines, str(file))]
    if not runs:
        raise BadInput("there is no run", where=str(file))
    return runs


def _tokens(data: Json, name: str, where: str) -> float | None:
    told = data.get(name)
    if told is None:
        return None
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told < float("inf"):
        raise BadInput(f'"{name}" is a number of 0 or more, or null', where=where)
    return float(told)


@final
@dataclass(frozen=True, slots=True)
class TokenChange:
    """Mean tokens of a task over the ``pairs`` where they were counted.

    ``change``: of repair alone, with minus without. ``total_change`` adds the localizer's own tokens to the
    arm with findings; None, as ``localizer`` is, where those were not counted for every pair.
    """

    pairs: int
    without: float
    repair: float
    localizer: float | None
    change: Interval
    total_change: Interval | None

    @property
    def relative(self) -> float | None:
        """The total's change as a share of the tokens without findings."""
        return (
            None
            if self.total_change is None or not self.without
            else self.total_change.estimate / self.without
        )


@final
@dataclass(frozen=True, slots=True)
class SettingTransfer:
    """One setting: rates of both arms over the same tasks, their difference, and the test.

    ``gains``, ``losses``: tasks that came out better and worse with findings. ``p``: Holm's, over settings.
    """

    setting: str
    tasks: int
    without: float
    with_: float
    difference: Interval
    gains: int
    losses: int
    test: Test
    p: float
    significant: bool
    tokens: TokenChange | None


@final
@dataclass(frozen=True, slots=True)
class TransferReport:
    """All settings; ``mean``: of their differences, each counted once.

    ``unmatched``: tasks of one arm only, left out. ``errors``: rollouts that broke, counted as not resolved.
    """

    findings: Findings
    settings: tuple[SettingTransfer, ...]
    mean: float
    unmatched: tuple[int, int]
    errors: tuple[int, int]

    @property
    def deployable(self) -> bool:
        """Whether this arm is something one could run: not a control."""
        return self.findings not in CONTROLS

    def refuse_control(self) -> None:
        """Raise CannotDo where the arm is a control and its figures are wanted for a deployment."""
        if not self.deployable:
            raise CannotDo(
                f"the arm with {self.findings} findings is a control and cannot be deployed",
                hint="give runs with all or gated findings",
            )

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "findings": self.findings,
            "deployable": self.deployable,
            "mean": self.mean,
            "unmatched": {"without": self.unmatched[0], "with": self.unmatched[1]},
            "errors": {"without": self.errors[0], "with": self.errors[1]},
            "settings": [
                asdict(one) | {"tokens": None if one.tokens is None else _token_json(one.tokens)}
                for one in self.settings
            ],
        }


def _token_json(tokens: TokenChange) -> Json:
    return asdict(tokens) | {"relative": tokens.relative}


def transfer_report(
    with_: Sequence[RepairRun], without: Sequence[RepairRun], *, level: float = 0.95
) -> TransferReport:
    """Compare repairs with and without findings, paired by task within each setting.

    Runs of one task and setting (seeds) are averaged first. Binary outcomes get McNemar's exact test, graded
    ones Wilcoxon's; p-values are Holm's over settings. A total counts the localizer's own tokens.

    Raises: BadInput where ``without`` had findings, ``with_`` had none or of several sorts, no setting has
        two tasks in both arms, or a setting is in one arm only.
    Source: arXiv:2606.24820 for the paired design and the tests; intervals are ours.
    """
    if not with_ or not without:
        raise BadInput("both arms need runs")
    if any(one.findings != "none" for one in without):
        raise BadInput("a run of the arm without findings had some", hint="are the two files swapped?")
    sorts = sorted({one.findings for one in with_})
    if len(sorts) > 1 or sorts == ["none"]:
        raise BadInput(
            f"the arm with findings had {' and '.join(sorts)}",
            hint='every row says "findings": all, gated, masked, shuffled or oracle',
        )
    given, bare = _by_setting(with_), _by_setting(without)
    if set(given) != set(bare):
        alone = sorted(set(given) ^ set(bare))[0]
        raise BadInput(f"the setting {alone!r} is in one arm only")
    drafts = [_compared(name, given[name], bare[name], level) for name in sorted(given)]
    # Holm's correction needs the tests of all settings at once, so no setting can be judged before.
    adjusted = holm(np.array([one.test.p for one in drafts]), 1 - level)
    rows = tuple(
        _with_p(one, float(p), bool(rejected))
        for one, p, rejected in zip(drafts, adjusted.p, adjusted.rejected, strict=True)
    )
    alone_bare = sum(len(set(bare[name]) - set(given[name])) for name in given)
    alone_given = sum(len(set(given[name]) - set(bare[name])) for name in given)
    return TransferReport(
        sorts[0],
        rows,
        float(np.mean([one.difference.estimate for one in rows])),
        (alone_bare, alone_given),
        (_errors(without), _errors(with_)),
    )


def _errors(runs: Sequence[RepairRun]) -> int:
    return sum(one.error is not None for one in runs)


def _by_setting(runs: Sequence[RepairRun]) -> dict[str, dict[str, list[RepairRun]]]:
    found: dict[str, dict[str, list[RepairRun]]] = {}
    for one in runs:
        found.setdefault(one.setting, {}).setdefault(one.task, []).append(one)
    return found


def _mean(runs: Sequence[RepairRun], name: str) -> float | None:
    """Of one task's runs; None unless every one has it."""
    values = [getattr(one, name) for one in runs]
    return None if any(value is None for value in values) else float(np.mean(values))


def _compared(
    setting: str,
    given: Mapping[str, Sequence[RepairRun]],
    bare: Mapping[str, Sequence[RepairRun]],
    level: float,
) -> SettingTransfer:
    tasks = sorted(set(given) & set(bare))
    if len(tasks) < 2:
        raise BadInput(f"{len(tasks)} tasks are in both arms", where=setting or None, hint="two at least")
    base = np.array([_mean(bare[task], "resolved") for task in tasks], float)
    other = np.array([_mean(given[task], "resolved") for task in tasks], float)
    gains, losses = int((other > base).sum()), int((other < base).sum())
    binary = is_binary(base) and is_binary(other)
    test = mcnemar(gains, losses) if binary else wilcoxon(base, other)
    return SettingTransfer(
        setting,
        len(tasks),
        float(base.mean()),
        float(other.mean()),
        paired_difference(base, other, level).interval,
        gains,
        losses,
        test,
        test.p,
        False,
        _token_change([(given[task], bare[task]) for task in tasks], level),
    )


def _with_p(one: SettingTransfer, p: float, significant: bool) -> SettingTransfer:
    return replace(one, p=p, significant=significant)


def _token_change(
    pairs: Sequence[tuple[Sequence[RepairRun], Sequence[RepairRun]]], level: float
) -> TokenChange | None:
    """None where fewer than two pairs were counted."""
    counted = [
        (_mean(bare, "tokens"), _mean(given, "tokens"), _mean(given, "localizer_tokens"))
        for given, bare in pairs
    ]
    whole = [row for row in counted if row[0] is not None and row[1] is not None]
    if len(whole) < 2:
        return None
    base, repair = (np.array([row[n] for row in whole], float) for n in (0, 1))
    own = None if any(row[2] is None for row in whole) else np.array([row[2] for row in whole], float)
    return TokenChange(
        len(whole),
        float(base.mean()),
        float(repair.mean()),
        None if own is None else float(own.mean()),
        paired_difference(base, repair, level).interval,
        None if own is None else paired_difference(base, repair + own, level).interval,
    )
