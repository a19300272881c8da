"""A search agent that refuses states it has seen, simulated on the whole maze (no branch stands for another).

Each proposal of the policy costs 1. One that leads to a state already seen is refused and drawn again, so
turning round in a dead branch cannot send the trajectory forward once more.

Source: our reading of Corollary 1 of arXiv 2606.22938. A state is a directed edge, parallel edges merged;
coming back to the fork from another branch is another state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.errors import BadInput
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.hitting import expected_hitting_time
from refork_methods.recovery.rows import A, B, C, D, Float64, RowPolicy, base_odds
from refork_methods.recovery.sample import moves_of, sample_paths

# The same three trainers on a tiny transformer that reads the last two nodes of a trajectory.
#
# Its tokens are node names without the branch, so one model serves all branches; the two admissible next
# nodes are compared by their logits. All rows share its weights: a row without data has no loss of its own,
# but its logits move with the others'. So unlike a table a network *drifts* on rows that nothing teaches,
# and the drift is what to measure.
#
# Source: arXiv 2606.22938 studies a table of logits; the network, its sizes and its training are ours.


Int64 = NDArray[np.int64]
_SOURCE, _FORK, _LEAF, _FIRST = 0, 1, 2, 3


def node_contexts(diamonds: int) -> tuple[Int64, Int64]:
    """What a walker has seen in each row, and where it can go.

    Returns:
        The last two nodes [4 K, 2], and the desired and the other next node [4 K, 2], as token ids.
    """
    left = [_FIRST + 2 * j for j in range(diamonds)]
    right = [_FIRST + 2 * j + 1 for j in range(diamonds)]
    inner, outer = [_FORK, *right[:-1]], [*left[1:], _LEAF]
    seen = (left, right), (outer, right), (inner, left), (right, left)
    goes = (outer, left), (left, outer), (right, inner), (inner, right)
    return (
        np.concatenate([np.array(pair).T for pair in seen]),
        np.concatenate([np.array(pair).T for pair in goes]),
    )


@final
class NodeTransformer:
    """A Llama-type model over node tokens; ``model`` is public and trained in place."""

    def __init__(self, graph: PathStar) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        self.graph = graph
        contexts, goes = node_contexts(graph.diamonds)
        self._contexts, self._goes = torch.from_numpy(contexts), torch.from_numpy(goes)
        config = LlamaConfig(
            vocab_size=_FIRST + 2 * graph.diamonds,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=4,
            tie_word_embeddings=True,
            initializer_range=0.1,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model: Any = LlamaForCausalLM(config)

    def log_odds(self) -> Tensor:
        """Log-odds of the desired move in each row, [4 K], with gradient."""
        logits = self.model(input_ids=self._contexts, use_cache=False).logits[:, -1].double()
        picked = logits.gather(1, self._goes)
        odds: Tensor = picked[:, 0] - picked[:, 1]
        return odds

    def policy(self) -> RowPolicy:
        """The distribution of the model as a row policy, for exact hitting times."""
        with torch.no_grad():
            odds = self.log_odds().reshape(4, self.graph.diamonds).numpy()
        return RowPolicy(self.graph, odds + np.log(base_odds(self.graph)))


@final
@dataclass(frozen=True, slots=True)
class NetworkTrained:
    """Exact expected moves along the way, and P(desired) [4, K] before and after."""

    curve: tuple[tuple[int, float], ...]
    before: Float64
    after: Float64


def _ascend(
    network: NodeTransformer, optimizer: torch.optim.Optimizer, weights: Float64, scale: float
) -> None:
    """One step up sum(weights * log-prob of the move) / scale; ``weights`` [4, K, 2]."""
    table = torch.from_numpy(np.ascontiguousarray(weights.reshape(-1, 2)))
    odds = network.log_odds()
    gain = table[:, 0] * torch.nn.functional.logsigmoid(odds)
    gain = gain + table[:, 1] * torch.nn.functional.logsigmoid(-odds)
    optimizer.zero_grad(set_to_none=True)
    (-gain.sum() / scale).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.model.parameters(), 1.0)
    optimizer.step()


def network_sft(
    network: NodeTransformer,
    moves: Float64,
    *,
    updates: int = 200,
    learning_rate: float = 1e-3,
) -> NetworkTrained:
    """Imitate a table of moves [4, K, 2] by the mean log-likelihood per move.

    Raises:
        BadInput: no moves.
    """
    if not moves.sum() > 0:
        raise BadInput("there are no moves to imitate", where="maze network")
    optimizer = torch.optim.AdamW(network.model.parameters(), lr=learning_rate, weight_decay=0.0)
    before, curve = network.policy(), [(0, _exact(network))]
    for number in range(updates):
        _ascend(network, optimizer, moves, float(moves.sum()))
        curve.append((number + 1, _exact(network)))
    return NetworkTrained(tuple(curve), before.desired, network.policy().desired)


def pretrain(network: NodeTransformer) -> NetworkTrained:
    """Teach the uniform walk, so that every method starts from the same base."""
    wide = network.graph.edges / (network.graph.edges + 1)
    desired = np.array([1 - wide, wide, wide, 1 - wide])[:, None].repeat(network.graph.diamonds, 1)
    distribution = np.stack([desired, 1 - desired], axis=-1)
    return network_sft(network, distribution, updates=300, learning_rate=3e-3)


def network_rlvr(network: NodeTransformer) -> NetworkTrained:
    """Policy gradient on sampled trajectories: reward 1[target] - moves / cap, normalised over the batch."""
    updates, batch, cap = 300, 64, 400
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(network.model.parameters(), lr=1e-3, weight_decay=0.0)
    before, curve = network.policy(), [(0, _exact(network))]
    for number in range(updates):
        trajectories = sample_paths(network.policy(), batch, cap, rng)
        reward = trajectories.reached - trajectories.steps / cap
        if reward.std() > 0:
            advantage = (reward - reward.mean()) / reward.std()
            row, wanted, whose = moves_of(trajectories)
            weights = np.zeros((4 * network.graph.diamonds, 2))
            # A row occurs many times: with plain indexing each would count once.
            np.add.at(weights, (row, np.where(wanted, 0, 1)), advantage[whose])
            _ascend(network, optimizer, weights, float(len(row)))
        curve.append((number + 1, _exact(network)))
    return NetworkTrained(tuple(curve), before.desired, network.policy().desired)


def _exact(network: NodeTransformer) -> float:
    return expected_hitting_time(network.policy()).value


@final
@dataclass(frozen=True, eq=False)
class Searches:
    """``cost`` [n] proposals made, ``reached`` [n] whether the target was found.

    The others were cut at the cap, or ran into states (``stuck`` [n]) all of whose successors were seen.
    """

    cost: Int64
    reached: NDArray[np.bool_]
    stuck: NDArray[np.bool_]


def _tables(policy: RowPolicy) -> tuple[Int64, Int64, NDArray[np.float64]]:
    """Wanted and other successor and the chance of the first, for the states of one branch.

    Rows a, b, c, d by diamond, then the leaf, then the fork as reached from this branch.
    """
    k = policy.graph.diamonds
    leaf, fork = 4 * k, 4 * k + 1
    wanted, other = np.zeros(4 * k + 2, dtype=np.int64), np.zeros(4 * k + 2, dtype=np.int64)
    for j in range(k):
        onward = C * k + j + 1 if j + 1 < k else leaf
        inward = B * k + j - 1 if j else fork
        wanted[A * k + j], other[A * k + j] = onward, D * k + j
        wanted[B * k + j], other[B * k + j] = D * k + j, onward
        wanted[C * k + j], other[C * k + j] = A * k + j, inward
        wanted[D * k + j], other[D * k + j] = inward, A * k + j
    wanted[leaf] = other[leaf] = B * k + k - 1
    chance = np.ones(4 * k + 2)
    chance[: 4 * k] = policy.desired.reshape(-1)
    return wanted, other, chance


def simulate_search(
    policy: RowPolicy, episodes: int, rng: np.random.Generator, *, cap: int = 100_000
) -> Searches:
    """Independent searches from the source; branch 0 holds the target.

    Raises:
        BadInput: no episodes.
    """
    if episodes < 1:
        raise BadInput(f"{episodes} episodes were asked for", where="search agent")
    graph = policy.graph
    wanted, other, chance = _tables(policy)
    leaf, fork, entry = 4 * graph.diamonds, 4 * graph.diamonds + 1, C * graph.diamonds
    seen = np.zeros((episodes, graph.branches, fork + 1), dtype=bool)
    branch, place = np.zeros(episodes, dtype=np.int64), np.full(episodes, fork)
    cost = np.ones(episodes, dtype=np.int64)
    reached, stuck = np.zeros(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    active = np.arange(episodes)
    # Every active search has made as many proposals as the first.
    while len(active) and int(cost[active[0]]) < cap:
        b, at = branch[active], place[active]
        at_fork = at == fork
        # Where everything around was seen, no proposal can ever be taken.
        open_fork = ~seen[active, :, entry].all(axis=1)
        open_here = ~(seen[active, b, wanted[at]] & seen[active, b, other[at]])
        lost = ~np.where(at_fork, open_fork, open_here)
        stuck[active[lost]] = True
        luck = rng.random(len(active))
        next_branch = np.where(at_fork, (luck * graph.branches).astype(np.int64), b)
        inside = np.where(luck < chance[at], wanted[at], other[at])
        there = np.where(at_fork, entry, inside)
        taken = ~seen[active, next_branch, there] & ~lost
        cost[active[~lost]] += 1
        moved = active[taken]
        branch[moved], place[moved] = next_branch[taken], there[taken]
        seen[moved, branch[moved], place[moved]] = True
        reached[moved] = (branch[moved] == 0) & (place[moved] == leaf)
        active = active[~lost & ~reached[active]]
    return Searches(cost, reached, stuck)
