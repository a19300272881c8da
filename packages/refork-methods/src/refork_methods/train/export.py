"""Groups, advantages and pairs in the data formats of TRL and verl, as Parquet files and as tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refork.errors import BadInput, MissingExtra
from refork.plain import content_hash
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.credit.methods import credit_method
from refork_methods.train.preference import Pair
from refork_methods.train.rows import RolloutRow

Decode = Callable[[Any], str]


def trl_rollouts(rows: Sequence[RolloutRow], decode: Decode | None = None) -> list[Json]:
    """Rows for TRL's GRPO: ``prompt`` is what its trainer groups by, the rest is what was sampled.

    ``prompt_ids``, ``completion_ids``, ``logprobs`` and ``env_mask`` are what a ``rollout_func`` returns
    (:func:`recorded_rollouts` makes one); ``reward`` is the outcome, ``advantages`` one number per
    completion token. ``decode`` turns prompt ids to text where the task has no messages.

    Raises:
        BadInput: a task without messages, and no ``decode``.
    """
    return [
        {
            "prompt": list(row.messages) or _prompt(row, decode),
            "prompt_ids": row.prompt.tolist(),
            "completion_ids": row.completion.tolist(),
            "logprobs": row.logprobs.tolist(),
            "env_mask": row.mask.astype(int).tolist(),
            "advantages": row.advantages.tolist(),
            "reward": row.reward,
            "group": row.group,
            "leaf": row.leaf,
        }
        for row in rows
    ]


def _prompt(row: RolloutRow, decode: Decode | None) -> str:
    if decode is None:
        raise BadInput(
            "this task has no chat messages, and TRL groups rollouts by their prompt's text",
            where=f"node {row.group[:12]}",
            hint="name the policy, whose tokenizer gives the text: --policy hf:DIR",
        )
    return decode(row.prompt)


def trl_pairs(pairs: Sequence[tuple[Pair, float]], decode: Decode) -> list[Json]:
    """Rows for TRL's DPO: texts under ``prompt``, ``chosen``, ``rejected``, and the exact token ids.

    Given the texts, TRL tokenises again and appends an end-of-sequence token. ``prompt_ids``,
    ``chosen_ids`` and ``rejected_ids`` are the columns its collator reads after that: put this data set in
    place of the prepared one (``trainer.train_dataset = ...``) to train on exactly what was sampled.
    """
    return [
        {
            "prompt": decode(pair.prompt),
            "chosen": decode(pair.chosen),
            "rejected": decode(pair.rejected),
            "prompt_ids": pair.prompt.tolist(),
            "chosen_ids": pair.chosen.tolist(),
            "rejected_ids": pair.rejected.tolist(),
            "difference": difference,
        }
        for pair, difference in pairs
    ]


def recorded_rollouts(rows: Sequence[Json]) -> Callable[[list[Any], Any], Json]:
    """A ``rollout_func`` for TRL's GRPOTrainer that answers prompts with what is recorded.

    The answers of a prompt are handed out in turn, each call going on where the last one stopped. Rewards
    come along under ``reward``; :func:`recorded_reward` is the reward function that reads them.

    Raises (when called):
        BadInput: a prompt that is not among the rows.
    """
    by_prompt: dict[str, list[Json]] = {}
    for row in rows:
        by_prompt.setdefault(json.dumps(row["prompt"], sort_keys=True), []).append(row)
    place: dict[str, int] = dict.fromkeys(by_prompt, 0)

    def rollout(prompts: list[Any], trainer: Any) -> Json:
        taken = []
        for prompt in prompts:
            name = json.dumps(prompt, sort_keys=True)
            if name not in by_prompt:
                raise BadInput("this prompt has no recorded rollout", where=name[:80])
            taken.append(by_prompt[name][place[name] % len(by_prompt[name])])
            place[name] += 1
        columns = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward")
        return {column: [row[column] for row in taken] for column in columns}

    return rollout


def recorded_reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    """The recorded outcomes: a reward function for TRL."""
    return [float(value) for value in columns["reward"]]


def trl_loss_inputs(rows: Sequence[Json], pad_id: int) -> dict[str, Tensor]:
    """The tensors that TRL's GRPO loss takes, with an advantage for every token.

    Prompts are padded on the left, completions on the right; ``advantages`` is [rows, longest completion],
    which TRL's loss accepts though its own estimator gives one number per row.
    """
    left = _padded([r["prompt_ids"] for r in rows], pad_id, left=True)
    right = _padded([r["completion_ids"] for r in rows], pad_id)
    ones = [[1] * len(r["completion_ids"]) for r in rows]
    mask = _padded([r["env_mask"] for r in rows], 0)
    return {
        "prompt_ids": left,
        "prompt_mask": _padded([[1] * len(r["prompt_ids"]) for r in rows], 0, left=True),
        "completion_ids": right,
        "completion_mask": _padded(ones, 0),
        "tool_mask": mask,
        "advantages": _padded([r["advantages"] for r in rows], 0.0),
        "old_per_token_logps": _padded([r["logprobs"] for r in rows], 0.0),
        "num_items_in_batch": mask.sum(),
    }


def verl_tasks(rows: Sequence[RolloutRow], *, ability: str = "agent") -> list[Json]:
    """Rows of verl's prompt data: one per task, in its Parquet layout.

    ``reward_model.ground_truth`` is the task as JSON, from which its world grades an answer; ``data_source``
    is the world's name, by which verl picks the reward function.
    """
    found: dict[str, Json] = {}
    for row in rows:
        # Not by its group: a task that was drawn under two settings is asked once.
        asked = content_hash([row.world, row.task, row.messages])
        if asked in found:
            continue
        if not row.messages:
            raise BadInput("this task has no chat messages", where=f"node {row.group[:12]}")
        found[asked] = {
            "data_source": row.world or "refork",
            "prompt": [{"role": str(m["role"]), "content": str(m["content"])} for m in row.messages],
            "ability": ability,
            "reward_model": {"style": "rule", "ground_truth": json.dumps(row.task, sort_keys=True)},
            "extra_info": {
                "split": str(row.task.get("split", "train")),
                "index": len(found),
                "task": str(row.task.get("id", "")),
                "node": row.group,
            },
        }
    return list(found.values())


def verl_rollouts(rows: Sequence[RolloutRow]) -> list[Json]:
    """Rollouts under verl's names, unpadded: one list per row, to be read back by :func:`verl_tensors`.

    ``uid`` is the group. The outcome lies on the last learned token of ``token_level_scores``.
    """
    return [
        {
            "uid": row.group,
            "data_source": row.world or "refork",
            "prompts": row.prompt.tolist(),
            "responses": row.completion.tolist(),
            "response_mask": row.mask.astype(int).tolist(),
            "old_log_probs": row.logprobs.tolist(),
            "ref_log_prob": None if row.ref_logprobs is None else row.ref_logprobs.tolist(),
            "token_level_scores": _on_last(row),
            "advantages": row.advantages.tolist(),
            "reward": row.reward,
            "leaf": row.leaf,
        }
        for row in rows
    ]


def _on_last(row: RolloutRow) -> list[float]:
    scores = np.zeros(len(row.completion))
    scores[int(np.flatnonzero(row.mask)[-1])] = row.reward
    return scores.tolist()


def verl_tensors(rows: Sequence[Json], pad_id: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Batch tensors and per-row arrays as verl's DataProto holds them.

    Prompts are padded on the left, responses on the right; ``input_ids`` joins them. ``returns`` equals
    ``advantages``, since there is no critic.
    """
    prompts = _padded([r["prompts"] for r in rows], pad_id, left=True)
    responses = _padded([r["responses"] for r in rows], pad_id)
    before = _padded([[1] * len(r["prompts"]) for r in rows], 0, left=True)
    after = _padded([[1] * len(r["responses"]) for r in rows], 0)
    attention = torch.cat([before, after], 1)
    batch = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses], 1),
        "attention_mask": attention,
        # Left padding counts -1, which is no position.
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": _padded([r["response_mask"] for r in rows], 0),
    }
    for name in ("old_log_probs", "token_level_scores", "advantages"):
        batch[name] = _padded([r[name] for r in rows], 0.0)
    batch["token_level_rewards"] = batch["token_level_scores"].clone()
    batch["returns"] = batch["advantages"].clone()
    if all(r["ref_log_prob"] is not None for r in rows):
        batch["ref_log_prob"] = _padded([r["ref_log_prob"] for r in rows], 0.0)
    plain = {name: np.array([r[name] for r in rows], dtype=object) for name in ("uid", "data_source")}
    return batch, plain


def _padded(rows: Sequence[Sequence[float]], value: float, *, left: bool = False) -> Tensor:
    width = max(len(row) for row in rows)
    # The filler's type decides the tensor's: 0.0 for log-probs and scores, 0 for ids and masks.
    kind = torch.float32 if isinstance(value, float) else torch.long
    out = torch.full((len(rows), width), value, dtype=kind)
    for place, row in enumerate(rows):
        span = slice(width - len(row), width) if left else slice(0, len(row))
        out[place, span] = torch.tensor(list(row), dtype=kind)
    return out


def write_parquet(rows: Sequence[Json], file: Path) -> int:
    """Write rows as a Parquet file, whole or not at all; how many.

    Raises:
        BadInput: there are none.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "export") from error
    if not rows:
        raise BadInput("there is nothing to write", where=str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return len(rows)


def export_tree(
    tree: Tree, file: Path, layout: str, *, policy: str | None = None, credit: str = "siblings",
    least: float = 0.25,
) -> int:  # fmt: skip
    """Write a tree's graded rollouts, or the pairs of its forks, in a named layout; how many rows.

    Args:
        tree: with graded rollouts.
        file: Parquet.
        layout: ``trl-grpo``, ``trl-dpo``, ``verl-tasks`` or ``verl-rollouts``.
        policy: whose tokenizer turns ids to text; pairs for TRL need it, and tasks without messages do.
        credit: name of the advantages to write.
        least: least difference in value of a pair.

    Raises:
        BadInput: an unknown layout, pairs without a policy, or a tree without graded rollouts.
    """
    from refork.policies.open import open_policy
    from refork_methods.train.sources import tree_pairs, tree_rows

    decode = None if policy is None else open_policy(policy).decode
    if layout == "trl-dpo":
        if decode is None:
            raise BadInput("preference pairs for TRL need texts", hint="name the policy: --policy hf:DIR")
        return write_parquet(trl_pairs(tree_pairs(tree, least), decode), file)
    rows = tree_rows(tree, credit_method(credit))
    if layout == "trl-grpo":
        return write_parquet(trl_rollouts(rows, decode), file)
    if layout == "verl-tasks":
        return write_parquet(verl_tasks(rows), file)
    if layout == "verl-rollouts":
        return write_parquet(verl_rollouts(rows), file)
    raise BadInput(f"unknown layout {layout!r}", hint="trl-grpo, trl-dpo, verl-tasks, verl-rollouts")
