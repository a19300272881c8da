"""The case file of a diagnosis: a page, the same as JSON, and a test that fails until the agent is mended."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from refork import stats
from refork.agents.diagnosis import CONFIRM, Diagnosis, LostStep, LostToken, Rescue, RunValue
from refork.agents.fork import Outcome, ProgramForkSettings
from refork.agents.tape import ProgramRun
from refork.errors import MissingExtra
from refork.forking.effect import Effect
from refork.report import words
from refork.types import Json
from refork.visible import visible

if TYPE_CHECKING:
    from markupsafe import Markup

#: Characters of a bar, and of a text on the page.
_BAR: Final = 20
_SHOWN: Final = 2_000
#: A test of a mended agent: the chance that an agent which is none passes, the rate that a mended one has,
#: the chance with which it passes, and the most runs that a test may take.
_PASSES: Final = 0.05
_MENDED: Final = 0.97
_POWER: Final = 0.8
_MOST: Final = 60


@final
@dataclass(frozen=True, slots=True)
class RegressionPlan:
    """How a mended agent is told from this one: at least ``needed`` of ``runs`` runs succeed.

    An agent that succeeds with chance ``before`` passes with chance ``_PASSES`` at the most.
    """

    runs: int
    needed: int
    before: float


def plan_of(value: RunValue) -> RegressionPlan | None:
    """The shortest test that tells an agent which nearly always succeeds from one with this value.

    None: the agent succeeds so often already that no short test could.
    """
    from scipy.stats import binom

    before = stats.clopper_pearson(value.successes, value.draws, 0.9).high
    for runs in range(2, _MOST + 1):
        needed = int(binom.isf(_PASSES, runs, before)) + 1
        if needed <= runs and binom.sf(needed - 1, runs, _MENDED) >= _POWER:
            return RegressionPlan(runs, needed, before)
    return None


@final
@dataclass(frozen=True, slots=True)
class MendedWay:
    """One way in which a program shows that it is mended: recorded answers up to a step, then as it goes.

    ``keeps``: the answer at the step is the recorded one, too.
    """

    what: str
    step: int
    keeps: bool
    plan: RegressionPlan


def ways_of(diagnosis: Diagnosis) -> list[MendedWay]:
    """How a program could show that it is mended, by what is known of it as it is."""
    values = {one.step: one for one in diagnosis.values}
    if diagnosis.confirmed:
        at, last = diagnosis.confirmed[0].step, diagnosis.confirmed[0].last
        looked = [
            (f"given the recorded answers up to step {last} and that one, too", last, True, last + 1),
            (f"given the recorded answers before step {at}", at, False, at),
        ]
    elif 0 in values and not values[diagnosis.steps].successes:
        looked = [("with every answer drawn anew", 0, False, 0)]
    else:
        looked = [("given every recorded answer", diagnosis.steps - 1, True, diagnosis.steps)]
    plans = [(what, step, keeps, plan_of(values[known])) for what, step, keeps, known in looked]
    return [MendedWay(what, step, keeps, plan) for what, step, keeps, plan in plans if plan is not None]


def reproduced_by(
    tape: str, run: ProgramRun, lost: LostStep, outcome: Outcome, settings: ProgramForkSettings
) -> str:
    """The command that shows the effect again, from the draws on the tape; nobody is asked."""
    parts = ["refork", "agent", "fork", tape, "--run", run.id, "--step", str(lost.step), "--change", "again"]
    parts += ["--through", str(lost.last)] if lost.last != lost.step else []
    parts += ["--draws", str(lost.effect.draws + lost.effect.ungraded), "--seed", str(CONFIRM)]
    for option, value in (
        ("--succeeds", outcome.succeeds),
        ("--fails", outcome.fails),
        ("--check", outcome.check),
        ("--judge", outcome.judge),
        ("--to", settings.to),
    ):
        parts += [option, value] if value is not None else []
    parts += ["--limit", f"{settings.limit_s:g}"] if settings.limit_s != ProgramForkSettings().limit_s else []
    parts += ["--tools", settings.tools] if settings.tools != ProgramForkSettings().tools else []
    parts += ["--contained"] if settings.contained else []
    return shlex.join([*parts, *(["--rerun-tools"] if settings.network or not settings.contained else [])])


def write_case(
    folder: Path,
    tape: str,
    run: ProgramRun,
    diagnosis: Diagnosis,
    settings: ProgramForkSettings,
    asked: Sequence[Json],
) -> list[Path]:
    """Write ``case.html``, ``case.md``, ``case.json`` and, where one can be made, ``test_case.py``.

    ``asked``: the exchanges of the run, as :func:`refork.agents.exchanges` gives them. ``case.html`` has
    pictures: it takes the extra ``report``, and is left out without.
    """
    folder.mkdir(parents=True, exist_ok=True)
    commands = [reproduced_by(tape, run, one, diagnosis.outcome, settings) for one in diagnosis.findings]
    ways = ways_of(diagnosis)
    told = diagnosis.to_json() | {
        "command": list(run.command),
        "folder": run.folder,
        "tape": tape,
        "reproduce": commands,
        "test": [asdict(one) for one in ways],
    }
    written = [folder / "case.md", folder / "case.json"]
    written[0].write_text(page(tape, run, diagnosis, commands, ways, asked))
    written[1].write_text(json.dumps(told, indent=2) + "\n")
    test = folder / "test_case.py"
    test.unlink(missing_ok=True)  # of an earlier diagnosis
    if ways:
        test.write_text(regression_test(tape, run, diagnosis, ways, settings))
        written.append(test)
    picture = folder / "case.html"
    picture.unlink(missing_ok=True)
    with suppress(MissingExtra):
        picture.write_text(picture_page(run, diagnosis, told, asked), encoding="utf-8")
        written.insert(0, picture)
    return written


def page(
    tape: str,
    run: ProgramRun,
    diagnosis: Diagnosis,
    commands: Sequence[str],
    ways: Sequence[MendedWay],
    asked: Sequence[Json],
) -> str:
    """The page, in Markdown."""
    level = 1 - diagnosis.settings.error
    lines = [
        f"# Run {run.id}: {_TITLES[diagnosis.verdict]}",
        "",
        f"{diagnosis.sentence[0].upper()}{diagnosis.sentence[1:]}.",
        "",
        f"Program: {_code(shlex.join(run.command))}, recorded with {diagnosis.steps} exchanges on "
        f"{_code(tape)}; it ended with exit status {run.exit}. A run succeeds where "
        f"{_wanted(diagnosis.outcome)}.",
        "",
    ]
    for lost, command in zip(diagnosis.findings, commands, strict=True):
        effect = lost.effect
        heading = "lost the run" if lost.confirmed else "looked at, and not confirmed"
        row, one = asked[lost.step], lost.step == lost.last
        arms = ("the recorded answer", "the answer") if one else ("the recorded answers", "all of them")
        lines += [
            f"## {lost.where[0].upper()}{lost.where[1:]}: {heading}", "",
            "What was new in the request:", "", *quoted(row["asked"]), "",
            "What the model answered:" if one else "What the model answered first:", "",
            *quoted(_answer_of(row)), "",
            "| arm | succeeds | of draws | interval |", "|---|---|---|---|",
            f"| control: {arms[0]} kept | {effect.base.rate:.0%} | {effect.draws} "
            f"| {effect.base.low:.0%} to {effect.base.high:.0%} |",
            f"| {arms[1]} drawn anew | {effect.other.rate:.0%} | {effect.draws} "
            f"| {effect.other.low:.0%} to {effect.other.high:.0%} |",
            f"| difference | {effect.difference:+.0%} | | {effect.low:+.0%} to {effect.high:+.0%} |", "",
            _tested(lost, level),
            "", "Shown again from the tape, without asking a model:", "",
            "```console", f"$ {command}", "```", "",
        ]  # fmt: skip
    if diagnosis.token is not None:
        lines += _inside(diagnosis.confirmed[0], diagnosis.token)
    if diagnosis.rescue is not None:
        lines += _rescue(diagnosis.confirmed[0].step, diagnosis.rescue)
    lines += [
        "## The chance of success along the run", "",
        "| before step | | succeeds | of draws | at most, at least |", "|---|---|---|---|---|",
        *(_value_row(one, diagnosis.steps) for one in diagnosis.values), "",
        "Before a step every answer is the recorded one, from there on it is drawn anew. The bounds hold for "
        f"all rows together at {level:.0%}, whenever the search stopped.", "",
        "## What was ruled out", "",
    ]  # fmt: skip
    if diagnosis.bounds:
        lines += ["| steps | their answers together lose at most |", "|---|---|"]
        lines += [
            f"| {first} to {last} | {most:.0%} |" if first < last else f"| {first} | {most:.0%} |"
            for first, last, most in diagnosis.bounds
        ]
        lines += ["", "A loss that a later gain of the same steps makes good is not seen here."]
    else:
        lines += ["Nothing: every step was tested."]
    lines += [
        "", "## Cost", "",
        f"{diagnosis.calls:,} requests to providers in {diagnosis.runs:,} runs of the program"
        + (" (what an earlier search had drawn was not drawn again)." if not diagnosis.runs else "."),
        "", "## Until it is mended", "",
    ]  # fmt: skip
    if not ways:
        lines.append(
            f"The program succeeds so often already that no test of up to {_MOST} runs would tell a better "
            "one."
        )
    else:
        lines.append(
            "`test_case.py` fails until the program is mended (pytest). It passes where one of these holds:"
        )
        lines.append("")
        lines += [
            f"- {one.what}, {one.plan.needed} of {one.plan.runs} runs succeed "
            f"(now {one.plan.before:.0%} at most)"
            for one in ways
        ]
        lines += [
            "",
            f"Each happens to the program as it is in at most {_PASSES:.0%} of tries, and to one that "
            f"succeeds in {_MENDED:.0%} of its runs in {_POWER:.0%} or more. A prompt may be changed: before "
            "the step a request that is not the recorded one gets the next recorded answer.",
        ]
    return "\n".join([*lines, ""])


def picture_page(run: ProgramRun, diagnosis: Diagnosis, facts: Json, asked: Sequence[Json]) -> str:
    """The page with pictures. ``facts``: what ``case.json`` holds.

    Raises: MissingExtra without the extra ``report``.
    """
    from refork.report.page import environment

    level = 1 - diagnosis.settings.error
    findings = [
        {
            "where": lost.where,
            "confirmed": lost.confirmed,
            "asked": _cut(asked[lost.step]["asked"]),
            "said": _cut(_answer_of(asked[lost.step])),
            "arms": _arms(
                lost.effect, "answer kept" if lost.step == lost.last else "answers kept", "drawn anew"
            ),
            "difference": _difference(lost.effect),
            "test": _tested(lost, level),
            "command": command,
        }
        for lost, command in zip(diagnosis.findings, facts["reproduce"], strict=True)
    ]
    part = diagnosis.rescue
    return (
        environment("refork.agents")
        .get_template("case.html.j2")
        .render(
            told=facts,
            title=_TITLES[diagnosis.verdict],
            command=shlex.join(run.command),
            status=run.exit,
            wanted=_wanted(diagnosis.outcome).replace("`", ""),
            findings=findings,
            rescue=part and _arms(part.effect, "whole answer", "without it"),
            inside=diagnosis.token and _arms(diagnosis.token.effect, "kept with it", "kept up to it"),
            inside_p=diagnosis.token and words.p_value(diagnosis.token.p),
            behind=diagnosis.token
            and _cut(
                diagnosis.confirmed[0].answer[len(diagnosis.token.before) + len(diagnosis.token.text) :]
            ),
            values=_along(diagnosis),
        )
        + "\n"
    )


def _arms(effect: Effect, control: str, changed: str) -> Markup:
    from refork.report.charts import Across, Row, intervals

    rows = [
        Row(name, one.rate, one.low, one.high, f"{words.rate(one.rate)}  ({words.span(one.low, one.high)})")
        for name, one in ((control, effect.base), (changed, effect.other))
    ]
    name = f"Success of both arms, {effect.draws} draws each, with intervals"
    return intervals(rows, name=name, across=Across(bounds=(0, 1)), value="Success").html()


def _difference(effect: Effect) -> Markup:
    from refork.report.charts import Across, Row, intervals

    ends = words.span(effect.low, effect.high, sign=True)
    text = f"{words.points(effect.difference)}  ({ends})"
    row = Row("difference", effect.difference, effect.low, effect.high, text)
    name = "Difference between the arms with its interval; zero means no effect"
    return intervals([row], name=name, across=Across("points", zero="no effect"), value="Difference").html()


def _along(diagnosis: Diagnosis) -> Markup:
    from refork.report import palette
    from refork.report.charts import Across, Row, intervals

    rows = [
        Row(
            f"before step {one.step}" if one.step < diagnosis.steps else "all answers kept",
            one.mean, one.low, one.high, f"{words.rate(one.mean)} of {one.draws} draws",
            palette.colour(one.mean),
        )
        for one in diagnosis.values
    ]  # fmt: skip
    name = "Success from each step on, every earlier answer the recorded one"
    return intervals(rows, name=name, across=Across(bounds=(0, 1), step=30), value="Success").html()


def _tested(lost: LostStep, level: float) -> str:
    effect = lost.effect
    return (
        f"Drawn for this test alone, arms without shared noise. Intervals at {effect.level:.1%}, each "
        f"end alone at {(1 + effect.level) / 2:.1%}; exact one-sided {words.p_value(lost.p)}, where "
        f"{(1 - effect.level) / 2:.4f} is the most. So all looks of all tests that a search may make "
        f"hold together at {level:.0%}."
    )


def _answer_of(row: Json) -> str:
    called = (f"{name}({told})" for name, told in zip(row["calls"], row["arguments"], strict=True))
    return "\n".join([*([row["said"]] if row["said"] else []), *called]) or "nothing"


def _cut(text: str) -> str:
    more = len(text) - _SHOWN
    return f"{text[:_SHOWN]}\n... {more:,} characters more" if more > 0 else text


def _inside(lost: LostStep, token: LostToken) -> list[str]:
    effect = token.effect
    shown = "lost the run" if token.confirmed else "looked at, and not confirmed"
    behind = lost.answer[len(token.before) + len(token.text) :]
    return [
        f"## Step {lost.step}, token {token.token}: {shown}", "",
        "The answer, with that token in a line of its own:", "",
        *quoted(f"{token.before}\n>>> {token.text}\n{behind}"), "",
        "| the answer is kept | succeeds | of draws | interval |", "|---|---|---|---|",
        f"| control: up to the token and it | {effect.base.rate:.0%} | {effect.draws} "
        f"| {effect.base.low:.0%} to {effect.base.high:.0%} |",
        f"| up to the token | {effect.other.rate:.0%} | {effect.draws} "
        f"| {effect.other.low:.0%} to {effect.other.high:.0%} |",
        f"| difference | {effect.difference:+.0%} | | {effect.low:+.0%} to {effect.high:+.0%} |", "",
        f"From there on the model goes on with the answer. The token was chosen on other draws; exact "
        f"one-sided {words.p_value(token.p)}.", "",
    ]  # fmt: skip


def _rescue(step: int, rescue: Rescue) -> list[str]:
    effect = rescue.effect
    heading = "What rescues it" if rescue.confirmed else "What was tried, and is not shown to rescue it"
    return [
        f"## {heading}", "",
        f"Left out of the answer at step {step}, all else kept:", "", *quoted(rescue.part), "",
        f"Then {effect.other.rate:.0%} of {effect.draws} runs succeed, with the whole answer "
        f"{effect.base.rate:.0%}: {effect.difference:+.0%} ({effect.low:+.0%} to {effect.high:+.0%} at "
        f"{effect.level:.0%}, exact one-sided {words.p_value(rescue.p)}). The part was chosen on other "
        "draws.", "",
    ]  # fmt: skip


#: Settings that a test of a case has, too.
_HELD: Final = ("to", "folder", "limit_s", "contained", "network", "tools")
_TITLES: Final = {
    "answer": "where it was lost",
    "chance": "it fails by chance",
    "always": "it never succeeds",
    "none": "no answer lost it",
    "budget": "not found within the budget",
}


def _wanted(outcome: Outcome) -> str:
    parts = [
        *([f"its output has {_code(outcome.succeeds)}"] if outcome.succeeds is not None else []),
        *([f"its output has no {_code(outcome.fails)}"] if outcome.fails is not None else []),
        *([f"{_code(outcome.check)} ends with 0 in its folder"] if outcome.check is not None else []),
        *([f"{_code(outcome.judge)} says so"] if outcome.judge is not None else []),
    ]
    return " and ".join(parts) or "its exit status is 0"


def _value_row(one: RunValue, steps: int) -> str:
    filled = round(one.mean * _BAR)
    bar = "█" * filled + "░" * (_BAR - filled)
    where = str(one.step) if one.step < steps else "end"
    return f"| {where} | {bar} | {one.mean:.0%} | {one.draws} | {one.low:.0%} to {one.high:.0%} |"


def _code(text: str) -> str:
    ticks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{visible(' '.join(text.split()))}{pad}{ticks}"


def quoted(text: str) -> list[str]:
    """A text that may hold anything, as a block that it cannot leave."""
    text = _cut(text)
    # A fence is longer than any run of its signs inside.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}text", *visible(text).splitlines(), fence]


def _from_anywhere(outcome: Outcome) -> Json:
    """An outcome's fields that are given, with a judge's file by its whole path."""
    told = {name: value for name, value in asdict(outcome).items() if value is not None}
    file, end, rest = told.get("judge", "").partition(".py:")
    return told | ({"judge": f"{Path(file).absolute()}{end}{rest}"} if end else {})


def regression_test(
    tape: str,
    run: ProgramRun,
    diagnosis: Diagnosis,
    ways: Sequence[MendedWay],
    settings: ProgramForkSettings,
) -> str:
    """A test file for pytest. It runs what the command names, as it is then."""
    facts: list[tuple[str, Any]] = [
        ("TAPE", str(Path(tape).absolute())),
        ("RUN", run.id),
        ("OUTCOME", _from_anywhere(diagnosis.outcome)),
        ("SETTINGS", {name: getattr(settings, name) for name in _HELD}),
    ]
    named = "\n".join(f"{name} = {value!r}" for name, value in facts)
    parts = [
        f"    # {one.what.capitalize()}. Now: {one.plan.before:.0%} at most.\n"
        f"    if successes(step={one.step}, keeps={one.keeps}, runs={one.plan.runs}) >= {one.plan.needed}:\n"
        "        return\n"
        for one in ways
    ]
    return f'''"""The agent of run {run.id} failed. This test fails until the agent is mended.

It passes where the agent succeeds clearly more often than it did, in one of the ways below. The agent as it
was passes in at most {len(parts) * _PASSES:.0%} of tries. It asks its provider each time, and runs its tools.
"""

import random
import tempfile
from pathlib import Path

from refork import agents
from refork.tree import Tree

{named}


def successes(step, keeps, runs):
    with tempfile.TemporaryDirectory() as folder:
        settings = agents.ProgramForkSettings(in_order=True, **SETTINGS)
        with Tree.open(Path(folder, "tape.db")) as tree, Tree.open(TAPE, "r") as tape:
            tree.merge(tape)  # into a copy: the draws of a test are not the case's
            points = agents.ProgramPoints(
                tree, agents.find_run(tree, RUN), outcome=agents.Outcome(**OUTCOME), settings=settings
            )
            (fork,) = points.draw({{points.arm(step, keeps=keeps, seed=random.getrandbits(31)): runs}})
            return sum(value or 0 for value in fork.values())


def test_the_agent_is_mended():
{"".join(parts)}    raise AssertionError("the agent fails as it did when run {run.id} was recorded")
'''
