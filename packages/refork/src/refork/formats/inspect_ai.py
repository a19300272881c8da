"""Logs of inspect_ai: ``.eval`` archives, whole or of a run that was killed, and the JSON form.

A sample is a walk, or several where contexts were rewritten; see ``inspect_messages``. Scores keep their
scorer with its options; what names the evaluation stands with the end of each walk.

Source: the files that UKGovernmentBEIS/inspect_ai writes (``log/_log.py``, ``_recorders/eval.py``), 2025-26.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head, whole
from refork.formats.conversation import origin
from refork.formats.inspect_files import PACKED, START, open_log
from refork.formats.inspect_messages import talks
from refork.formats.openai_chat import OpenAIChat
from refork.plain import content_hash
from refork.policies.base import Policy
from refork.tree.node import NewNode, node_id
from refork.tree.records import Position, Record, Remark
from refork.tree.score import Producer, Score
from refork.types import Json

#: inspect_ai's letters for correct, incorrect, partially correct, and no answer.
LETTERS: Final[Mapping[str, float]] = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_KEPT: Final = (
    "task",
    "task_id",
    "task_version",
    "task_args",
    "run_id",
    "eval_id",
    "created",
    "model",
    "model_args",
)
_APART: Final = ("messages", "events", "attachments", "events_data", "message_pool", "scores")


@final
class InspectAI:
    """Reads inspect_ai's logs without that package; for Zstandard the extra ``inspect`` is needed."""

    name, label = "inspect", "inspect_ai"
    order = 20
    #: What the format never records of a turn.
    lacks = ("token ids",)

    def __init__(self, policy: Policy | None = None) -> None:
        self._chat = OpenAIChat(policy)

    @property
    def tokenizer(self) -> str | None:
        """Digest of the tokenizer that texts are tokenised with."""
        return self._chat.tokenizer

    def sniff(self, head: Head) -> bool:
        """Whether the file is an archive that begins with inspect_ai's journal, or a JSON log."""
        if head.data.startswith(PACKED):
            return head.data[30:].startswith(START) or head.name.endswith(".eval")
        start = head.text.lstrip()
        marks = ('"version"', '"status"', '"eval"')
        return start.startswith("{") and all(mark in start[:4096] for mark in marks)

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts and scores of every sample; samples that cannot be read are skipped.

        Raises:
            BadInput: the archive is beyond the limits, or no evaluation.
            MissingExtra: it is packed with Zstandard, and that package is not installed.
        """
        with open_log(path) as log:
            if not log.packed and log.header.get("samples") is None:
                what = f"the log has no samples (status {log.header.get('status')!r})"
                raise BadInput(what, where=str(path))
            yield from log.remarks
            for where, one in log.samples:
                if isinstance(one, (Remark, Position)):
                    yield one
                else:
                    yield from whole(_sample(one, log.header, self._chat, where), where, "inspect_ai")


def _sample(sample: Json, header: Json, chat: OpenAIChat, where: str) -> Iterator[Record]:
    if "id" not in sample or not isinstance(sample.get("messages", []), list):
        raise BadInput("this is not a sample", where=where)
    rest = {key: value for key, value in sample.items() if key not in _APART and value not in (None, {}, [])}
    rest |= {"scores": sample["scores"]} if sample.get("scores") else {}
    rest["eval"] = _evaluation(header)
    name = content_hash([rest["eval"].get("run_id"), sample])
    found = list(talks(sample, where))
    if not found:
        raise BadInput("the sample has no messages", where=where)
    yield from _lost(sample, where)
    told = rest["eval"]
    for number, talk in enumerate(found):
        kept = rest if number == 0 else {"sample": sample["id"], "eval": rest["eval"]}
        kept = kept | ({"message_ids": talk.ids} if any(talk.ids) else {})
        kept |= {"tools": talk.tools} if talk.tools else {}
        line = f"inspect/{name}/{number}"
        log = told.get("eval_id") or told.get("run_id")
        made = origin("inspect", talk.model or told.get("model"), log=log, task=told.get("task"))
        new_nodes = list(chat.drafts(talk.messages, kept, line, where, told=talk.told, origin=made))
        error = sample.get("error")
        if number == 0 and isinstance(error, Mapping):
            new_nodes[-1] = replace(new_nodes[-1], error=str(error.get("message") or "error"))
        yield from new_nodes
        if number == 0:
            yield from _scores(sample, header, new_nodes[-1], where)


def _evaluation(header: Json) -> Json:
    """What names the evaluation (task, model, run), the values of its metrics, and the tokens that it used.

    Its plan and settings stay in the log.
    """
    told = header.get("eval")
    kept = {key: told[key] for key in _KEPT if told.get(key)} if isinstance(told, dict) else {}
    metrics = dict(_metrics(header))
    stats = header.get("stats")
    usage = stats.get("model_usage") if isinstance(stats, dict) else None
    return kept | ({"metrics": metrics} if metrics else {}) | ({"model_usage": usage} if usage else {})


def _metrics(header: Json) -> Iterator[tuple[str, Any]]:
    """Values of metrics over all samples, by ``scorer/metric``."""
    results = header.get("results")
    scorers = results.get("scores") if isinstance(results, dict) else None
    for scorer in scorers if isinstance(scorers, list) else ():
        found = scorer.get("metrics") if isinstance(scorer, dict) else None
        for name, one in found.items() if isinstance(found, dict) else ():
            if isinstance(one, dict) and "value" in one:
                yield f"{scorer.get('name')}/{name}", one["value"]


def _lost(sample: Json, where: str) -> Iterator[Remark]:
    events = sample.get("events")
    other = [e for e in events if isinstance(e, dict) and e.get("event") != "model"] if events else []
    if other:
        yield Remark("lost", "events other than model calls", where, len(other))


def _scores(sample: Json, header: Json, leaf: NewNode, where: str) -> Iterator[Record]:
    """Numbers of every scorer at the end of the walk, with the scorer's explanation."""
    given = sample.get("scores")
    if not isinstance(given, Mapping) or leaf.key is None:
        return
    at = node_id(leaf.parent, leaf.keep, leaf.kind, leaf.key)
    for name, score in given.items():
        body = score if isinstance(score, Mapping) else {"value": score}
        producer = Producer(str(name), "1", {"inspect_ai": _options(header, str(name))})
        numbers = list(_numbers(str(name), body.get("value")))
        if not numbers:
            yield Remark("lost", f"a score of {name} that is no number; it stands under extra", where)
            continue
        yield producer
        reason = body.get("explanation")
        for one, value in numbers:
            yield Score(at, one, value, producer.id, str(reason) if reason else None)


def _options(header: Json, name: str) -> Json:
    told = header.get("eval")
    scorers = told.get("scorers") if isinstance(told, dict) else None
    for scorer in scorers if isinstance(scorers, list) else ():
        if isinstance(scorer, dict) and scorer.get("name") == name:
            options = scorer.get("options")
            return options if isinstance(options, dict) else {}
    return {}


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """A score's value as numbers: letters have theirs, and of a dictionary each entry is one."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _numbers(f"{name}/{key}", one)
    elif isinstance(value, str) and value in LETTERS:
        yield name, LETTERS[value]
    elif isinstance(value, (bool, int, float)) and math.isfinite(value):
        yield name, float(value)
