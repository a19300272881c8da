"""Rows of verl: dumps of its rollouts, answers of its generation, its prompt data, and batches in token ids.

A dump has a line for each sample with ``input``, ``output``, ``gts``, ``score`` and what the reward function
said beside. Generated answers (``responses``) are branches of their prompt. Batches keep ids, masks,
log-probs and rewards; padding is taken off where the attention mask is there to say what it is.

Source: ``ray_trainer.py``, ``main_generation_server.py`` and the data set layout of verl 0.9, read in 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import GradedAnswer, answered, messages_of
from refork.formats.base import Head
from refork.formats.conversation import graded
from refork.formats.log_reader import RowReader
from refork.formats.rows import begins
from refork.formats.sampled import SampledSequence, total
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json

_DUMP: Final = frozenset({"input", "output", "score"})
_BATCH: Final = frozenset({"prompts", "responses"})
_DATA: Final = frozenset({"prompt", "data_source"})
_MARKS: Final = frozenset({"reward_model", "ability", "extra_info"})
_ARRAYS: Final = frozenset({
    *_BATCH, "input_ids", "attention_mask", "position_ids", "response_mask", "loss_mask", "old_log_probs",
    "rollout_log_probs", "ref_log_prob", "token_level_scores", "token_level_rewards", "advantages", "returns",
    "log_probs_t1",
})  # fmt: skip
_VALUES: Final = {
    "advantage": "advantages", "token_reward": "token_level_rewards", "token_score": "token_level_scores",
    "return": "returns",
}  # fmt: skip


@final
class Verl(RowReader):
    """Reads verl's rows, JSON lines or Parquet; a policy tokenises texts, and turns ids to text."""

    name, label = "verl", "verl"
    order = 63

    def sniff(self, head: Head) -> bool:
        """Whether the first line has the keys of one of verl's rows."""
        return begins(head, self.has, [_DUMP | {"gts", "step"}])

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these keys are verl's."""
        if columns >= _DUMP:
            return bool(columns & {"gts", "step"})
        return columns >= _BATCH or (columns >= _DATA and bool(columns & _MARKS))

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """Records of one row."""
        keys, line = frozenset(body), f"verl/{name}"
        if keys >= _DUMP:
            yield from self._dumped(body, line, where)
        elif keys >= _BATCH:
            yield from self._batch(body, line, where)
        elif keys >= {"prompt"}:
            yield from self._data(body, line, where)
        else:
            raise BadInput("the row is no dump, no batch and no prompt of verl", where=where)

    def _dumped(self, body: Json, line: str, where: str) -> Iterator[Record]:
        if not isinstance(body["input"], str) or not isinstance(body["output"], str):
            raise BadInput("input and output are not texts", where=where)
        prompt = messages_of(body["input"], "user", where, "input")
        said = messages_of(body["output"], "assistant", where, "output")
        rest = {key: value for key, value in body.items() if key not in ("input", "output")}
        yield Remark("lost", "roles, token ids, log-probs and times: a dump has two texts", where)
        new_nodes = self._chat.drafts([*prompt, *said], rest, line, where)
        yield from graded(new_nodes, Producer("verl"), _numbers(rest))

    def _batch(self, body: Json, line: str, where: str) -> Iterator[Record]:
        prompt, completion = body["prompts"], body["responses"]
        masks = body.get("attention_mask")
        arrays = {key: value for key, value in body.items() if key in _ARRAYS}
        if isinstance(masks, list) and isinstance(prompt, list) and isinstance(completion, list):
            if len(masks) != len(prompt) + len(completion):
                raise BadInput("the attention mask is not one number for each token", where=where)
            # One mask covers prompt and response, in this order.
            real = [bool(one) for one in masks[len(prompt) :]]
            prompt = [token for token, kept in zip(prompt, masks, strict=False) if kept]
            arrays = {key: _unpadded(value, real) for key, value in arrays.items()}
            completion = arrays["responses"]
        one = SampledSequence(
            prompt=prompt,
            completion=completion,
            generated_mask=arrays.get("response_mask", arrays.get("loss_mask")),
            logprobs=arrays.get("rollout_log_probs", arrays.get("old_log_probs")),
            logprobs_t1=arrays.get("log_probs_t1"),
            ref_logprobs=arrays.get("ref_log_prob"),
            values={name: arrays[key] for name, key in _VALUES.items() if arrays.get(key) is not None},
        )
        rest = {key: value for key, value in body.items() if key not in _ARRAYS}
        # The outcome that verl itself reports is the sum of the scores of tokens.
        outcome = total(arrays.get("token_level_scores"))
        scores = _numbers(rest) | ({} if "reward" in rest else {"reward": outcome})
        producer = Producer("verl", config=_source(body))
        yield from self._sampled.records(one, rest, line, where, producer, scores)

    def _data(self, body: Json, line: str, where: str) -> Iterator[Record]:
        prompt = messages_of(body["prompt"], "user", where, "prompt")
        if not prompt:
            raise BadInput("the prompt has no messages", where=where)
        rest = {key: value for key, value in body.items() if key not in ("prompt", "responses", "scores")}
        said = body.get("responses")
        if said is None:
            yield from self._chat.drafts(prompt, {}, line, where, root={"task": rest})
            return
        said = [said] if isinstance(said, str) else said
        grades = body.get("scores") or [None] * len(said)
        if not isinstance(grades, list) or len(grades) != len(said):
            raise BadInput("there is not one score for each response", where=where)
        yield Remark("lost", "token ids, log-probs and times: the file has none", where)
        answers = [
            GradedAnswer(str(number), messages_of(text, "assistant", where, "response"), {"score": grade})
            for number, (text, grade) in enumerate(zip(said, grades, strict=True))
        ]
        producer = Producer("verl", config=_source(body))
        yield from answered(self._chat, prompt, answers, rest, line, where, producer)


def _unpadded(values: Any, real: list[bool]) -> Any:
    """Numbers of a padded response, those of padding left out."""
    if not isinstance(values, list) or len(values) != len(real):
        return values
    return [value for value, kept in zip(values, real, strict=True) if kept]


def _numbers(rest: Json) -> Json:
    """The scores of a row: every number but its step."""
    return {key: value for key, value in rest.items() if key not in ("step", "uid", "index")}


def _source(body: Json) -> Json:
    source = body.get("data_source")
    return {"data_source": source} if isinstance(source, str) else {}
