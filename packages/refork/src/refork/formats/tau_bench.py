"""Results of tau-bench: an array of runs, each with its task, trial, reward and messages.

A task is the agent's instructions and the task's number. What the simulated user says first is drawn anew in
every trial, so it is an observation, and the trials of a task are draws of one point. A run that broke off
without a message is skipped with its error.

Source: ``types.py``, ``run.py`` and ``agents`` of tau-bench 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.base import HEAD, Head
from refork.formats.conversation import check_results, graded, mapping, origin
from refork.formats.log_reader import LogReader
from refork.formats.tokenised import lacking
from refork.tree.records import Record, Remark
from refork.tree.score import Producer
from refork.types import Json

#: In the order in which they are written.
_KEYS: Final = ("task_id", "reward", "info", "traj", "trial")


@final
class TauBench(LogReader):
    """Reads tau-bench's results; token ids are recorded where a policy is given to tokenise with."""

    name, label = "tau-bench", "tau-bench"
    order = 32

    def sniff(self, head: Head) -> bool:
        """Whether the file is an array of runs with the fields of tau-bench's."""
        start = head.text.lstrip()
        # What the task asks for stands before the messages, which may begin beyond what is looked at.
        sure = _KEYS if len(head.data) < HEAD else _KEYS[:3]
        return start.startswith("[") and all(f'"{key}"' in start for key in sure)

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """One run."""
        if missing := [key for key in _KEYS if key not in body]:
            raise BadInput(f"this run has no {missing[0]}", where=where)
        listed, info = body["traj"], mapping(body["info"])
        if not isinstance(listed, list) or not listed:
            why = info.get("error") or "the file does not say why"
            raise BadInput(f"this run broke off without a message: {why}", where=where)
        messages = [whole_message(one, f"{where}, message {at}") for at, one in enumerate(listed, start=1)]
        check_results(messages, where)
        yield Remark("lost", f"{lacking(self._policy)}, times and the model: the file has none", where)
        new_nodes = self._chat.drafts(
            messages,
            {key: value for key, value in body.items() if key != "traj"},
            f"tau-bench/{name}",
            where,
            root={"task": str(body["task_id"])},
            origin=origin("tau-bench"),
            opening=1 if messages[0]["role"] == "system" else 0,
        )
        yield from graded(new_nodes, Producer("tau-bench", "0.1"), {"reward": body["reward"]})
