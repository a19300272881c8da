"""The two stages as a user runs them: a table to a head in a folder, and a head to a better one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Int

from refork.errors import BadInput
from refork.plain import to_json
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.decide import BestRule, Regret, against_rules
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.evolve import EvolveSettings, ReinforceSettings, evolve, reinforce
from refork_methods.route.head import HeadCard, SelectionHead, measured, query_digest, save_head, text_digest
from refork_methods.route.rollouts import Greedy, Rollouts, Router
from refork_methods.route.stage1 import JointSettings, Stage1, Stage1Settings, fit_joint, fit_stage1
from refork_methods.route.table import OutcomeTable
from refork_methods.route.verdict import Verdict, paired_with_best


@final
@dataclass(frozen=True, slots=True)
class Always:
    """A router that names one worker, whatever it sees."""

    head: SelectionHead
    worker: int

    @property
    def identity(self) -> Json:
        """The worker."""
        return {"router": "always", "worker": self.worker}

    def choose(self, states: np.ndarray, rows: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        """The one worker."""
        return np.full(len(states), self.worker)


def fit_head(
    table: OutcomeTable,
    folder: Path,
    settings: Stage1Settings | None = None,
    *,
    backbone: RouterBackbone | None = None,
    joint: JointSettings | None = None,
    tests: Collection[str] = (),
    progress: Progress = silent,
) -> Json:
    """Stage 1 from a table into a folder; what came out as plain JSON.

    States are the table's features, or (``backbone``) those of its texts; ``joint`` moves singular values.

    Raises: BadInput for a query without text where a backbone is to read it, and as the fits; DiskFull.
    """
    plan = settings or Stage1Settings()
    moved: Json | None = None
    shown: tuple[Regret | None, Verdict | None] | None = None
    if backbone is None:
        if joint is not None:
            raise BadInput("singular values are moved in a backbone", hint="name one")
        plain = fit_stage1(table, None, plan, tests=tests)
        head = plain.head
    else:
        texts = _texts(table)
        if joint is not None:
            table.check_fit(tests=tests, cold=tuple(plan.cold), uneven=True)
            both = fit_joint(table, backbone, texts, plan, joint, progress=progress)
            plain, head, moved = both.plain, both.head, both.to_json()
            shown = both.regret, both.verdict
        else:
            plain = fit_stage1(table, backbone.states(texts, progress), plan, tests=tests)
            head = plain.head.on(backbone)
    # What is told is of the head that is written, with its offsets where it has some.
    lost, verdict = shown or (plain.regret, plain.verdict)
    report = plain.to_json() | {
        "held_out": None if lost is None else to_json(lost),
        "verdict": None if verdict is None else verdict.to_json(),
        "moved": moved,
    }
    written = save_head(folder, head, _card(table, plain, plan, backbone, report))
    return report | {
        "folder": str(folder),
        "workers": list(head.workers),
        "measured": to_json(written)["measured"],
    }


def _texts(table: OutcomeTable) -> list[str]:
    texts = table.texts or (None,) * len(table.queries)
    missing = next((name for name, text in zip(table.queries, texts, strict=True) if not text), None)
    if missing is not None:
        raise BadInput(f"query {missing!r} has no text for the backbone to read", hint="add a text column")
    return [str(text) for text in texts]


def _card(
    table: OutcomeTable, plain: Stage1, plan: Stage1Settings, backbone: RouterBackbone | None, report: Json
) -> HeadCard:
    fitted = table.select(plain.fitted)
    scores = measured(fitted) | dict.fromkeys(plan.cold)
    return HeadCard(
        plain.head.workers,
        measured={name: scores.get(name) for name in plain.head.workers},
        queries=tuple(sorted({query_digest(name) for name in plain.fitted})),
        texts=tuple(sorted({text_digest(text) for text in fitted.texts or () if text})),
        best_single=plain.single,
        fit={"stage": 1, "settings": to_json(plan), "result": report},
        backbone_name=backbone.policy.card.name if backbone is not None else None,
    )


def train_route(
    start: SelectionHead,
    rollouts: Rollouts,
    tests: Rollouts,
    settings: EvolveSettings | None = None,
    *,
    folder: Path | None = None,
    card: HeadCard | None = None,
    runs: int = 200,
    rival: bool = False,
    progress: Progress = silent,
) -> Json:
    """Stage 2 from a head, then a trial on other tasks: the start, the result, and every worker alone.

    All are tried on the same ``runs`` tasks with the same luck. ``rival`` also trains by REINFORCE on as many
    rollouts. With ``folder`` the run can be resumed, and the head is written there.

    Raises: as :func:`evolve` and :func:`reinforce`.
    """
    plan = settings or EvolveSettings()
    made = evolve(start, rollouts, plan, folder=folder, progress=progress)
    heads = {"evolved": made.head, "start": start}
    other: Json | None = None
    if rival:
        found = reinforce(start, rollouts, ReinforceSettings.like(plan, start), progress=progress)
        heads["REINFORCE"], other = found.head, found.to_json()
    told = trial(heads, tests, runs, plan.seed)
    report: Json = {"evolved": made.to_json(), "rival": other, "trial": told}
    if folder is not None:
        before = card or HeadCard(start.workers, start.roles)
        fit = {"stage": 2, "settings": asdict(plan), "result": report, "before": before.fit}
        save_head(folder, made.head, replace(before, fit=fit))
    return report


def trial(heads: dict[str, SelectionHead], tests: Rollouts, runs: int, seed: int) -> Json:
    """Mean rewards of heads and of single workers on the same tasks with the same luck.

    ``gap`` is the first head's to the best of all others, ``reference`` to the second head; ``verdict`` is
    the first head's beside the best single worker, picked for each task by the other tasks.

    Raises: BadInput for fewer than two runs or tasks.
    """
    if min(runs, tests.size) < 2:
        raise BadInput(f"a trial of {runs} runs of {tests.size} tasks has no interval", hint="two or more")
    # All tasks come once before any comes again.
    tasks = np.arange(runs) % tests.size
    names = list(heads)
    first = heads[names[0]]
    routers: dict[str, Router] = {name: Greedy(head, tests.open) for name, head in heads.items()}
    for place, worker in enumerate(tests.workers):
        if tests.open is None or worker in tests.open:
            routers[f"always {worker}"] = Always(first, place)
    rewards = {name: tests(router, tasks, seed).reward for name, router in routers.items()}
    rules = {name: reward for name, reward in rewards.items() if name != names[0]}
    found: BestRule = against_rules(
        rewards[names[0]], rules, np.random.default_rng([seed, 6]), reference=names[1], resamples=2000
    )
    single = {w: rewards[f"always {w}"] for w in tests.workers if f"always {w}" in rewards}
    verdict = paired_with_best(
        rewards[names[0]], np.stack(list(single.values()), axis=1), list(single), tasks
    )
    return {"runs": runs, **to_json(found), "verdict": verdict.to_json()}
