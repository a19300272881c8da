"""Rows of SkyRL: dumps of its evaluations, and what its generators return, one sample a line.

A dump has texts with a score (or one for each token, whose sum SkyRL reports); a generator's output has token
ids, rewards, loss masks and the log-probs of sampling.

Source: ``trainer_utils.py`` and ``generators/base.py`` of SkyRL 0.3, read in 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from refork.errors import BadInput
from refork.formats.answers import messages_of
from refork.formats.base import Head
from refork.formats.conversation import graded
from refork.formats.log_reader import RowReader
from refork.formats.rows import begins
from refork.formats.sampled import SampledSequence, finish_of, total
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json

_DUMP: Final = frozenset({"input_prompt", "output_response"})
_IDS: Final = frozenset({"prompt_token_ids", "response_ids"})
_ARRAYS: Final = frozenset({*_IDS, "loss_masks", "loss_mask", "rollout_logprobs", "rewards", "reward"})


@final
class SkyRL(RowReader):
    """Reads SkyRL's rows, JSON lines or Parquet; a policy tokenises texts, and turns ids to text."""

    name, label = "skyrl", "SkyRL"
    order = 62

    def sniff(self, head: Head) -> bool:
        """Whether the first line has the keys of one of SkyRL's rows."""
        return begins(head, self.has, (_DUMP, _IDS))

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these keys are SkyRL's."""
        return columns >= _DUMP or columns >= _IDS

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """Records of one row."""
        line = f"skyrl/{name}"
        environment = body.get("env_class")
        producer = Producer("skyrl", config={"env": environment} if isinstance(environment, str) else {})
        if body.keys() >= _IDS:
            yield from self._in_ids(body, line, where, producer)
        elif body.keys() >= _DUMP:
            yield from self._dumped(body, line, where, producer)
        else:
            raise BadInput("the row is no dump of SkyRL and no output of its generators", where=where)

    def _dumped(self, body: Json, line: str, where: str, producer: Producer) -> Iterator[Record]:
        messages = [
            *messages_of(body["input_prompt"], "user", where, "input_prompt"),
            *messages_of(body["output_response"], "assistant", where, "output_response"),
        ]
        rest = {key: value for key, value in body.items() if key not in _DUMP}
        yield Remark("lost", "roles, token ids, log-probs and times: a dump has two texts", where)
        told: list[Json] = [{} for message in messages if message["role"] == "assistant"]
        if told:
            told[-1] = {"finish": finish_of(body.get("stop_reason"))}
        new_nodes = self._chat.drafts(messages, rest, line, where, facts=told)
        yield from graded(new_nodes, producer, {"score": total(body.get("score"))})

    def _in_ids(self, body: Json, line: str, where: str, producer: Producer) -> Iterator[Record]:
        rewards = body.get("rewards", body.get("reward"))
        one = SampledSequence(
            prompt=body["prompt_token_ids"],
            completion=body["response_ids"],
            generated_mask=body.get("loss_masks", body.get("loss_mask")),
            logprobs=body.get("rollout_logprobs"),
            values={"token_reward": rewards} if isinstance(rewards, list) else {},
            finish=finish_of(body.get("stop_reason", body.get("stop_reasons"))),
        )
        rest = {key: value for key, value in body.items() if key not in _ARRAYS}
        yield from self._sampled.records(one, rest, line, where, producer, {"reward": total(rewards)})
