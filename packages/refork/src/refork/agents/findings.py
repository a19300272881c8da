"""What is told of runs to an assistant: a finding cannot be made without its interval and its control."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from refork.forking.effect import Effect, Rate

#: A share or a chance; no infinity and no NaN.
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class AnswerModel(BaseModel):
    """Fields that are known by name, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SureRange(AnswerModel):
    """An interval, and how sure it is (0.95: it holds in 95 of 100 cases)."""

    low: Finite
    high: Finite
    level: Annotated[float, Field(gt=0, lt=1)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"an interval from {self.low} to {self.high} is none")
        return self

    def __str__(self) -> str:
        return f"{self.low:+.0%} to {self.high:+.0%} at {100 * self.level:.4g}%"


class ArmRate(AnswerModel):
    """How often one arm succeeded. ``what``: what stood at the point in its draws."""

    what: Annotated[str, Field(min_length=1)]
    rate: Share
    interval: SureRange
    draws: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _inside(self) -> Self:
        _holds(self.interval, self.rate)
        return self

    def __str__(self) -> str:
        return (
            f"{self.what} {self.rate:.0%} of {self.draws} draws "
            f"({self.interval.low:.0%} to {self.interval.high:.0%})"
        )


class AgentFinding(AnswerModel):
    """What a change at one step of a run does: changed minus control, with the interval of the difference.

    ``confirmed``: whether it is more than chance, with every look counted. ``says`` is made of the figures:
    no finding is put into words without its interval and its control.
    """

    step: Annotated[int, Field(ge=0)]
    control: ArmRate
    changed: ArmRate
    difference: Finite
    interval: SureRange
    p: Share
    paired: bool
    confirmed: bool

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _holds(self.interval, self.difference)
        if abs(self.changed.rate - self.control.rate - self.difference) > 1e-6:
            raise ValueError("the difference is not that of the two arms")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def says(self) -> str:
        """The finding in words."""
        told = "confirmed" if self.confirmed else "not confirmed: it may be chance"
        return (
            f"step {self.step}: with {self.changed} succeed, with the control {self.control}; difference "
            f"{self.difference:+.0%} ({self.interval}); {told}"
        )

    @classmethod
    def of(
        cls, effect: Effect, step: int, control: str, changed: str, *, confirmed: bool | None = None
    ) -> AgentFinding:
        """The finding of an effect; unless told otherwise it is confirmed where its interval excludes 0."""
        return cls(
            step=step,
            control=_arm(control, effect.base, effect),
            changed=_arm(changed, effect.other, effect),
            difference=effect.difference,
            interval=SureRange(low=effect.low, high=effect.high, level=effect.level),
            p=effect.p,
            paired=effect.paired,
            confirmed=(effect.low > 0 or effect.high < 0) if confirmed is None else confirmed,
        )


def _arm(what: str, rate: Rate, effect: Effect) -> ArmRate:
    interval = SureRange(low=max(0.0, rate.low), high=min(1.0, rate.high), level=effect.level)
    return ArmRate(what=what, rate=rate.rate, interval=interval, draws=effect.draws)


def _holds(interval: SureRange, value: float) -> None:
    if not interval.low - 1e-9 <= value <= interval.high + 1e-9:
        raise ValueError(f"{value} is not in its interval, {interval}")


class RecordedStep(AnswerModel):
    """One exchange with a model. ``asked``: what was new in the request; ``error``: in place of an answer.

    ``by``: the program's step that asked, in words, where that was told.
    """

    step: int
    conversation: int
    model: str | None
    asked: str
    answered: str
    calls: list[str]
    error: str | None
    tokens_in: int | None
    tokens_out: int | None
    by: str = ""


class RecordedTool(AnswerModel):
    """A call of a tool that the tape has, after so many exchanges; ``replayable``: its result was kept."""

    after: int
    text: str
    replayable: bool


class ListedRun(AnswerModel):
    """A run of a program, as recorded; ``exit`` None: it never ended."""

    run: str
    command: list[str]
    folder: str
    exit: int | None
    exchanges: int
    conversations: int
    failed: int
    tokens_in: int
    tokens_out: int


class RunsTold(AnswerModel):
    """The runs of a tape."""

    tape: str
    runs: list[ListedRun]


class RecordTold(AnswerModel):
    """A run that was just recorded. ``unkept``: tools whose results were not kept; it cannot be replayed."""

    tape: str
    run: ListedRun
    output: str
    tool_calls: int
    unkept: list[str]


class StepValue(AnswerModel):
    """How often the program succeeded when it had the recorded answers before a step and asked anew from it.

    At the number of steps: every answer was the recorded one. The interval holds whenever the drawing ended;
    ``succeeds``, ``fails`` and ``check`` are what success was.
    """

    step: int
    rate: Share
    interval: SureRange
    draws: Annotated[int, Field(ge=1)]
    succeeds: str | None
    fails: str | None
    check: str | None


class RunExplained(AnswerModel):
    """A whole run: what was asked and said step by step, and the values that draws on the tape show."""

    run: ListedRun
    output: str
    steps: list[RecordedStep]
    tools: list[RecordedTool]
    values: list[StepValue]


class StepExplained(AnswerModel):
    """One exchange in full: the messages of the request, settings, the answer with its calls, values."""

    run: str
    exchange: RecordedStep
    messages: list[dict[str, Any]]
    settings: dict[str, Any]
    answer: dict[str, Any] | None
    values: list[StepValue]


class ForkTold(AnswerModel):
    """A fork: what it found, and how its draws went. ``left_out``: draws that were none."""

    run: str
    change: str
    finding: AgentFinding
    left_out: int
    first_left_out: str | None
    other_files: int
    tools: dict[str, int]


class RuledOut(AnswerModel):
    """The answers of these steps together lose at most this much."""

    first: int
    last: int
    most: Share


class WhyTold(AnswerModel):
    """Why a run was lost. An answer is blamed only by a finding that is confirmed.

    ``verdict``: an ``answer`` lost it; by ``chance``; it ``always`` fails; ``none``: no answer did;
    ``budget``: not found within the requests that were allowed.
    """

    run: str
    verdict: Literal["answer", "chance", "always", "none", "budget"]
    says: str
    findings: list[AgentFinding]
    rescue: AgentFinding | None
    rescue_part: str | None
    values: list[StepValue]
    ruled_out: list[RuledOut]
    requests: int
    runs: int
    case_files: list[str]

    @model_validator(mode="after")
    def _founded(self) -> Self:
        if (self.verdict == "answer") != any(one.confirmed for one in self.findings):
            raise ValueError("an answer is blamed by a finding that is confirmed, and by nothing else")
        return self
