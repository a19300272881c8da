"""The search itself: choose a node, write from it, try what was written, tell the tree.

A round's choice is recorded before it is tried, and whatever is recorded is not done again. So a search that
was stopped at any moment goes on to the same tree as one that was not, given the same evaluations.

Source: arXiv 2606.26453 for the ingredients; how they fit together is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import final

from refork.errors import BadInput, Mismatch, UserError
from refork.progress import Progress, silent
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.folder import History, Round, SearchFolder, SearchNode, path_to
from refork_methods.kernel.search.model import (
    Evaluator,
    KernelSearchSettings,
    Observation,
    Proposal,
    Trial,
    Writer,
    WriterState,
)
from refork_methods.kernel.search.strategy import Strategy, reward, strategy
from refork_methods.kernel.tool import Slip

#: Longest cause that a note cites.
_MOST = 300


def notes_on(trial: Trial, before: Sequence[Trial], noise: float, stuck: int, plateau: int) -> list[str]:
    """Notes that a try leaves, ``before`` being the tries ahead of it.

    ``stuck``: tries since the fastest was found, this one included; each multiple of ``plateau`` is noted.
    An error is noted once for each family of moves.
    """
    found: list[str] = []
    if not trial.ok:
        cause = trial.why[:_MOST]
        known = any(not one.ok and one.family == trial.family and one.why[:_MOST] == cause for one in before)
        if not known:
            found.append(f"error: {trial.move}: {cause}")
    elif trial.gain is not None and trial.gain > noise:
        found.append(f"fact: {trial.move} made node {trial.parent} {trial.gain:.3g} times as fast")
    elif trial.gain is not None and trial.gain < 1 / noise:
        found.append(f"fact: {trial.move} made node {trial.parent} slower, {trial.gain:.3g} times as fast")
    if stuck and stuck % plateau == 0:
        found.append(f"plateau: nothing faster was found in {stuck} tries")
    return found


_STAGE = "kernels tried"


@final
class SearchLoop:
    """One search, run once. ``record`` holds what an earlier run left, and takes the rest (None: nobody)."""

    def __init__(
        self,
        entry: str,
        original: Candidate,
        settings: KernelSearchSettings,
        evaluator: Evaluator,
        writer: Writer,
        *,
        record: SearchFolder | None = None,
    ) -> None:
        self.entry, self.original, self.settings = entry, original, settings
        self.evaluator, self.writer = evaluator, writer
        self.nodes: list[SearchNode] = []
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._record = record
        self._stored = History() if record is None else record.history
        self.observations = dict(self._stored.observations)
        #: Rules and tools that broke, each once; the search went on without them.
        self.slips: list[Slip] = list(self._stored.slips)
        #: Digest of a candidate -> the node that tried it.
        self._seen: dict[str, int] = {}
        self._tried: defaultdict[int, list[str]] = defaultdict(list)
        self._best = 0

    @property
    def done(self) -> int:
        """Kernels tried, the original not counted."""
        return max(0, len(self.nodes) - 1)

    @property
    def best(self) -> SearchNode:
        """The fastest right kernel so far, as measured in the search; the original where none is faster."""
        return self.nodes[self._best]

    def run(self, progress: Progress = silent, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Search until the budget is spent or no way is open; False where ``stopped`` ended it before.

        Raises:
            BadInput: the original itself fails.
            Mismatch: the history is not one of this search.
        """
        progress(_STAGE, 0, self.settings.evaluations)
        self._keep(self._root())
        ways = strategy(self.settings, self._reward(self.nodes[0].evaluated), self.evaluator.noise)
        recorded = iter(self._stored.rounds)
        for number in count():
            choice = next(recorded, None)
            if choice is None:
                if self.done >= self.settings.evaluations:
                    return True
                if stopped():
                    return False
                choice = self._choose(number, ways, progress)
            if choice is None:
                return True
            if not self._try(choice, ways, progress, stopped):
                return self.done >= self.settings.evaluations
        raise AssertionError  # count() has no end

    def observe_best(self, progress: Progress = silent) -> None:
        """Profile the fastest, and the original, where they were not."""
        for at in sorted({0, self._best}):
            self._observe(at, progress)

    def _root(self) -> SearchNode:
        """The original, tried where it is not recorded."""
        if self._stored.nodes:
            root = self._stored.nodes[0]
            if root.candidate != self.original:
                raise Mismatch("the recorded search is of another kernel", where="kernel search")
            return root
        root = SearchNode(
            number=0, parent=-1, candidate=self.original, evaluated=self.evaluator.evaluate(self.original)
        )
        if not root.evaluated.ok:
            raise BadInput(
                f"the kernel itself fails ({root.evaluated.stage}): {root.evaluated.why}",
                where=self.entry,
                hint="mend it, or loosen rtol and atol",
            )
        if self._record is not None:
            self._record.add_node(root)
        return root

    def _choose(self, number: int, ways: Strategy, progress: Progress) -> Round | None:
        """The next round, recorded; None where every way is shut."""
        at = ways.select()
        if at is None:
            return None
        self._observe(at, progress)
        found: list[Proposal] = []
        for index in range(self.settings.batch):
            made = self.writer.propose(self._state(at, found, (self.settings.seed, number, index)))
            if made is None:
                break
            found.append(made)
        choice = Round(number, at, tuple(found), len(found) < self.settings.batch)
        if self._record is not None:
            self._record.add_round(choice)
        return choice

    def _observe(self, at: int, progress: Progress) -> None:
        """Profile a node before it is first written from; one that cannot be leaves the reason."""
        node = self.nodes[at]
        if self.settings.feedback == "none" or at in self.observations or not node.evaluated.ok:
            return
        progress(_STAGE, self.done, self.settings.evaluations, waiting=f"profiling node {at}")
        try:
            seen = self.evaluator.observe(node.candidate, node.evaluated)
        except UserError as error:
            seen = Observation(absent={"diagnosis": str(error)})
        except Exception as error:
            slip = Slip.of("diagnosis", error)
            seen = Observation(absent={"diagnosis": slip.error}, slips=(slip,))
        for slip in seen.slips:
            self._slipped(slip)
        seen = replace(seen, slips=())
        self.observations[at] = seen
        if self._record is not None:
            self._record.add_observation(at, seen)

    def _slipped(self, slip: Slip) -> None:
        """Keep what broke: once, however often the same rule breaks in the same way."""
        if not any((one.rule, one.error) == (slip.rule, slip.error) for one in self.slips):
            self.slips.append(slip)
            if self._record is not None:
                self._record.add_slip(slip)

    def _state(self, at: int, pending: list[Proposal], key: tuple[int, int, int]) -> WriterState:
        node = self.nodes[at]
        seen = None if self.settings.feedback == "none" else self.observations.get(at)
        if seen is not None:
            diagnosed = self.settings.feedback == "diagnosed"
            seen = replace(seen, counters={}) if diagnosed else replace(seen, findings=())
        return WriterState(
            entry=self.entry,
            number=at,
            path=path_to(self.nodes, at),
            candidate=node.candidate,
            evaluated=node.evaluated,
            observation=seen,
            tried=(*self._tried[at], *(one.move for one in pending)),
            trials=self.trials,
            notes=self.notes,
            known=self._seen.keys() | {one.candidate.digest for one in pending},
            noise=self.evaluator.noise,
            key=key,
            report=self._slipped,
        )

    def _try(self, choice: Round, ways: Strategy, progress: Progress, stopped: Callable[[], bool]) -> bool:
        """Try a round in order and tell the tree; False where the budget or a stop ended it in its midst.

        What a pruned or spent parent leaves untried is dropped.
        """
        # Recorded kernels that are still to be taken over, perhaps more than this round has: what lies behind
        # them in the round is new.
        known = max(0, len(self._stored.nodes) - len(self.nodes))
        ahead = [one.candidate for one in choice.proposals[known:] if not one.refused]
        fresh = [one for one in ahead if one.digest not in self._seen]
        for position, proposal in enumerate(choice.proposals):
            if ways.closed(choice.parent):
                break
            if position >= known and (self.done >= self.settings.evaluations or stopped()):
                return False
            if position == known and fresh:
                progress(_STAGE, self.done, self.settings.evaluations, waiting="builds")
                self.evaluator.prepare(fresh)
            node = self._node(choice.parent, proposal, progress)
            self._keep(node)
            ways.add(choice.parent, self._reward(node.evaluated))
            progress(_STAGE, self.done, self.settings.evaluations)
        if choice.spent:
            ways.spend(choice.parent)
        return True

    def _node(self, parent: int, proposal: Proposal, progress: Progress) -> SearchNode:
        """The recorded node of a proposal, or a new one, tried and recorded."""
        number = len(self.nodes)
        if number < len(self._stored.nodes):
            stored = self._stored.nodes[number]
            if stored.parent != parent or stored.candidate != proposal.candidate:
                raise Mismatch(f"node {number} is not the one that was chosen", where="kernel search",
                               hint="the folder's files do not belong together")  # fmt: skip
            return stored
        progress(_STAGE, self.done, self.settings.evaluations, waiting=proposal.move)
        evaluated = self._evaluated(proposal)
        node = SearchNode(
            number=number, parent=parent, candidate=proposal.candidate, evaluated=evaluated, proposal=proposal
        )
        speedup, best = evaluated.least, self.best.evaluated.least
        ahead = evaluated.ok and speedup is not None and (best is None or speedup > best)
        stuck = 0 if ahead else number - self._best
        told = notes_on(self._trial(node), self.trials, self.evaluator.noise, stuck, self.settings.plateau)
        node = replace(node, notes=tuple(told))
        if self._record is not None:
            self._record.add_node(node)
        return node

    def _evaluated(self, proposal: Proposal) -> Evaluated:
        if proposal.refused:
            return Evaluated(ok=False, stage="untried", why=proposal.refused)
        same = self._seen.get(proposal.candidate.digest)
        if same is not None:
            return Evaluated(ok=False, stage="untried", why=f"the same code as node {same}")
        return self.evaluator.evaluate(proposal.candidate)

    def _keep(self, node: SearchNode) -> None:
        """Take a tried kernel into what the search knows."""
        self.nodes.append(node)
        # A refused answer carries its parent's code, which it did not try.
        if node.proposal is None or not node.proposal.refused:
            self._seen.setdefault(node.candidate.digest, node.number)
        if node.proposal is not None:
            self._tried[node.parent].append(node.proposal.move)
            self.trials.append(self._trial(node))
        self.notes += node.notes
        speedup, best = node.evaluated.least, self.best.evaluated.least
        if node.evaluated.ok and speedup is not None and (best is None or speedup > best):
            self._best = node.number

    def _trial(self, node: SearchNode) -> Trial:
        made = node.proposal
        assert made is not None
        before, after = self.nodes[node.parent].evaluated, node.evaluated
        gain = after.least / before.least if before.ok and after.ok and before.least and after.least else None
        return Trial(
            node.number, node.parent, made.move, made.family, made.answers, after.ok, gain, after.why
        )

    def _reward(self, evaluated: Evaluated) -> float:
        """The tree's reward: a kernel that is right but was not timed counts as the reference."""
        if not evaluated.ok:
            return 0.0
        return reward(1.0 if evaluated.least is None else evaluated.least, self.settings.most)
