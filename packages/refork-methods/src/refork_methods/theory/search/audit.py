"""A search done again from its record: what differs, and what should not have been used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from refork.errors import Mismatch, UserError
from refork.plain import canonical
from refork.sandbox import Sandbox
from refork.types import Json
from refork_methods.theory.gate import gate
from refork_methods.theory.metrics import measure
from refork_methods.theory.pool import SEEDS, next_label
from refork_methods.theory.search.folder import people_of, read_theories
from refork_methods.theory.search.loop import TheorySearch
from refork_methods.theory.search.observed import failed, predict
from refork_methods.theory.search.participants import Participants
from refork_methods.theory.search.scientist import Designed
from refork_methods.theory.search.statistic import metric_of, read_statistic
from refork_methods.theory.simulate import simulate


@final
@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit looked at, how often, and what it found.

    ``discriminating``: designs used whose difference shows again in fresh simulations at the number of people
    kept, and all that were used.
    """

    checked: dict[str, int]
    findings: tuple[str, ...]
    discriminating: tuple[int, int]
    digest: str | None

    def to_json(self) -> Json:
        """Plain JSON."""
        return {"checked": self.checked, "findings": list(self.findings),
                "discriminating": list(self.discriminating), "digest": self.digest}  # fmt: skip


def audit_theories(folder: Path, sandbox: Sandbox) -> Audit:
    """Read a folder's record, simulate everything in it again, and compare bit for bit.

    Looked at: the chain of the record, labels and slots, gates and that none was passed over, predictions of
    every theory on every observation, answers of simulated people, people kept against people planned, and
    that no held-out stimulus is in a prompt.

    Raises: BadInput where it is not the folder of a search.
    """
    try:
        recipe, search, _ = read_theories(folder, sandbox)
    except Mismatch as error:
        return Audit({"record": 1}, (f"the record was changed: {error}",), (0, 0), None)
    checked: dict[str, int] = {"steps": len(search.record)}
    findings: list[str] = []
    people = people_of(recipe, search.domain, sandbox)
    if people.name != (search.record.get("start") or {}).get("participants"):
        findings.append("the participants are not those of the record: the file of choices was changed")
    parts = {
        "labels": _labels(search),
        "gates": _gates(search),
        "predictions": _predictions(search),
        "answers": _answers(search, people),
        "prompts": _prompts(search, people),
    }
    for name, found in parts.items():
        told = list(found)
        checked[name] = len(told)
        findings += [one for one in told if one]
    return Audit(checked, tuple(findings), _again(search), search.record.digest)


def _labels(search: TheorySearch) -> Iterator[str]:
    """Labels and parents, derived again from the verdicts."""
    labels, slots = list(SEEDS), list(SEEDS)
    for number in range(1, len(search.pool.rounds) + 1):
        ruled = search.record.get(f"{number}/verdict")
        admitted = search.record.get(f"{number}/admitted")
        if not ruled or not admitted:
            continue
        old = slots[ruled["target"] - 1]
        label = next_label(labels, old, ruled["ruling"])
        labels.append(label)
        slots[ruled["target"] - 1] = label
        right = (admitted["label"], admitted["parent"]) == (label, old)
        yield "" if right else f"round {number} admitted {admitted['label']}, and should have {label}"


def _designs(search: TheorySearch) -> Iterator[tuple[str, Json, Json]]:
    """Key, design and gate of every gated design."""
    for key, step in search.record.items():
        if key.endswith("/gate"):
            design = search.record.get(key.removesuffix("gate") + "design")
            assert design is not None  # a gate follows its design
            yield key, design, step


def _gates(search: TheorySearch) -> Iterator[str]:
    """Every gate, simulated again; and that every observation had one that it passed."""
    passed = set()
    for key, design, step in _designs(search):
        number, side, attempt, _ = key.split("/")
        again = search.gate_again(int(number), int(side), int(attempt), design)
        if step["accepted"] is not None:
            passed.add(f"{number}/{side}")
        same = canonical(again) == canonical(step)
        yield "" if same else f"gate {key.removesuffix('/gate')} does not come out the same"
    for key in search.record_keys("people"):
        side = key.removesuffix("/people")
        yield "" if side in passed else f"observation {side} was made without an admitted design"


def _predictions(search: TheorySearch) -> Iterator[str]:
    for label, rows in search.predicted.items():
        chooser = search.theories[label].chooser(label, search.domain, search.sandbox)
        for one, row in zip(search.observed, rows, strict=True):
            try:
                same = predict(chooser, one, search.settings) == row
            except UserError:
                same = row == failed(one)
            yield "" if same else f"{label} on {one.name} does not come out the same"


def _answers(search: TheorySearch, people: Participants) -> Iterator[str]:
    for one in search.observed:
        try:
            planned = people.remaining_people(one.observation.experiment, search.settings.people)
            again = people.answer(one.observation.experiment, search.settings.people, one.key)
        except UserError as error:
            yield f"{one.name}: {error}"
            continue
        trials = one.observation.trials
        if len(trials.people) < planned:
            yield f"{one.name} has {len(trials.people)} people, and its gate was for {planned}"
        same = all(
            np.array_equal(getattr(again, name), getattr(trials, name))
            for name in ("person", "stimulus", "response")
        )
        yield "" if same else f"the choices of {one.name} are not those that the participants give"


def _prompts(search: TheorySearch, people: Participants) -> Iterator[str]:
    """Whether a whole held-out design stands in what a model was told."""
    settings = search.settings
    kept = people.held_out(search.domain, settings.held_out, settings.people, settings.seed)
    secret = [canonical(one.experiment.to_json()) for one in kept]
    for key, step in search.record.items():
        for asked in step.get("asked", ()):
            text = " ".join(str(message["content"]) for message in asked["messages"])
            leaked = any(one in text for one in secret)
            yield f"a held-out design stands in the prompt of {key}" if leaked else ""


def _again(search: TheorySearch) -> tuple[int, int]:
    """Designs that were used, tested once more by fresh people at the number kept."""
    told = total = 0
    for key, step, gated in _designs(search):
        if gated["accepted"] is None:
            continue
        number, side, _, _ = key.split("/")
        slots = search.slots_before(int(number))
        design: Designed = search.designed(step)
        labels = (slots[int(side) - 1], slots[2 - int(side)])
        metric = metric_of(
            read_statistic(step["statistics"][gated["accepted"]]), design.experiment, search.sandbox
        )
        # The fourth word makes these people fresh: without it, or with 0, the seeds are the observation's.
        seeds = np.random.SeedSequence((search.settings.seed, int(number), int(side), 7)).generate_state(2)
        pair = [
            measure(metric, simulate(
                search.theories[label].chooser(label, search.domain, search.sandbox), design.experiment,
                int(gated["kept"]), int(seed)))
            for label, seed in zip(labels, seeds, strict=True)
        ]  # fmt: skip
        total += 1
        told += gate(pair[0], pair[1], kept_people=int(gated["kept"]), alpha=search.settings.alpha).accepted
    return told, total
