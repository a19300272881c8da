"""Score chat logs or a tree with a pair of models: render, two forward passes, checked log-probs."""

from __future__ import annotations

from pathlib import Path

from refork.errors import BadInput, UserError
from refork.forking.arm import resolved_scores
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.implicit.aggregate import refuse_all_zero
from refork_methods.implicit.logged import Facts, Scored, read_chats
from refork_methods.implicit.on_tree import tree_implicit
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.implicit.predict import trajectory_digest
from refork_methods.implicit.render import ACTIONS, RENDERS, ActionTokens


def score_chats(
    file: Path,
    pair: ImplicitPair,
    *,
    render: str | None = None,
    actions: str = "assistant",
    progress: Progress = silent,
) -> list[Scored]:
    """Every trajectory of a file of chat logs with the log-probs of both models, in order.

    Raises:
        BadInput: an unknown rendering; a trajectory without an action or with log-probs that are not
            finite; its line is named.
        WrongTokenizer: the two tokenizers read a text apart.
        CannotDo: a template that rewrites earlier turns.
    """
    how = next((name for name in RENDERS if name == render), None)
    if render is not None and how is None:
        raise BadInput(f"unknown rendering {render!r}", hint=f"known: {', '.join(RENDERS)}")
    whose = next((name for name in ACTIONS if name == actions), None)
    if whose is None:
        raise BadInput(f"unknown choice of actions {actions!r}", hint=f"known: {', '.join(ACTIONS)}")
    chats = read_chats(file)
    rendered: list[ActionTokens] = []
    for facts, messages in chats:
        try:
            rendered.append(pair.render(messages, how, whose))
        except UserError as error:
            place = f"trajectory {facts.name}" + (f", {error.where}" if error.where else "")
            raise type(error)(error.what, where=place, hint=error.hint) from error
    pairs = pair.logprobs(rendered, progress)
    refuse_all_zero(pairs, str(file))
    return [
        Scored(facts, logprobs, item.messages, pair.names, pair.beta)
        for (facts, _), logprobs, item in zip(chats, pairs, rendered, strict=True)
    ]


def scored_tree(
    tree: Tree,
    pair: ImplicitPair | None,
    score: str = "success",
    beta: float | None = None,
    progress: Progress = silent,
) -> list[Scored]:
    """Every rollout of a tree with the log-probs of both models; the scores are written on the tree.

    ``pair`` None: the log-probs recorded at sampling time. ``beta`` None: the pair's own, 1 without a pair.
    Rollouts that ended in an error are left out.
    """
    if beta is None:
        beta = 1.0 if pair is None else pair.beta
    failed = {draw.leaf for fork in tree.forks() for draw in tree.draws(fork.id) if draw.end == "error"}
    leaves = [node.id for node in tree.leaves() if node.id not in failed]
    trajectories = [
        trajectory for trajectory in tree.paths(leaves) if any(s.node.kind == "action" for s in trajectory)
    ]
    if not trajectories:
        raise BadInput("there is no rollout with an action in this tree")
    pairs, producer = tree_implicit(tree, trajectories, pair, beta=beta, progress=progress)
    graded = resolved_scores(tree, score, [trajectory.leaf.id for trajectory in trajectories])
    names: Json = {"policy": producer.config["policy"], "reference": producer.config["reference"]}
    found = []
    for trajectory, logprobs in zip(trajectories, pairs, strict=True):
        leaf = trajectory.leaf.id
        facts = Facts(leaf, trajectory.root.id, graded.get(leaf), None, trajectory_digest(leaf))
        found.append(Scored(facts, logprobs, tuple(range(logprobs.steps)), names, beta))
    return found
