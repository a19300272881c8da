"""A drafter at the seam of the branching decoder: it proposes blocks for all branches, and settles them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from refork.decoding.packed import PackedLinears
from refork.decoding.speculator import ActiveRows, Drafts, Settled
from refork.decoding.states import Layer
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import IntArray, Json
from refork_methods.speculate.accept import PlainChances, RoundChances, plain_gumbels, round_chances
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.config import HeldOut
from refork_methods.speculate.context import DraftContext, Proposer
from refork_methods.speculate.eagle import EagleDraft
from refork_methods.speculate.rounds import Round
from refork_methods.speculate.schedule import Scheduler
from refork_methods.speculate.verification import (
    Block,
    Chain,
    Group,
    Noise,
    Rule,
    Spread,
    Turn,
    draw_chain,
    grouped,
    settle_coupled,
    settle_rejection,
)

# What is told of a round: to who counts, who calibrates, and who records what was not said.

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rejected:
    """Drafts [k] that a branch did not say, in place of what it said from ``offset`` of its turn on."""

    request_id: int
    offset: int
    tokens: Ints


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A round of branches [n]: ``accepted`` drafts, none beyond an end; which branches ``ended`` in them."""

    branches: ActiveRows
    drafts: Drafts
    accepted: Ints
    ended: NDArray[np.bool_]

    @classmethod
    def of(cls, branches: ActiveRows, drafts: Drafts, accepted: Ints, eos: frozenset[int]) -> Outcome:
        """An outcome in which drafts behind the end of an answer do not count."""
        known = {id(settings): settings for settings in branches.settings}
        ends = {name: _ends(settings, eos) for name, settings in known.items()}
        accepted, ended = accepted.copy(), np.zeros(len(accepted), dtype=np.bool_)
        every = frozenset().union(*ends.values())
        kept = np.arange(drafts.tokens.shape[1]) < accepted[:, None]
        hits = kept & np.isin(drafts.tokens, list(every)) if every else kept & False
        # From the last to the first, so that of several ends in a row the first one is what stays.
        for row, place in np.argwhere(hits)[::-1].tolist():
            if int(drafts.tokens[row, place]) in ends[id(branches.settings[row])]:
                accepted[row], ended[row] = place + 1, True
        return cls(branches, drafts, accepted, ended)

    def rejected(self) -> list[Rejected]:
        """The verified drafts that were not said."""
        turned = np.flatnonzero((self.accepted < self.drafts.lengths) & ~self.ended)
        return [
            Rejected(
                int(self.branches.request_id[row]),
                int(self.branches.generated[row] + self.accepted[row]),
                self.drafts.tokens[row, self.accepted[row] : self.drafts.lengths[row]].copy(),
            )
            for row in turned.tolist()
        ]

    def rounds(
        self, rows: Ints, confidence: NDArray[np.float64], schedule: str | None, step: int, began: float
    ) -> list[Round]:
        """One record for each of ``rows``, whose confidence logits are [rows, g]."""
        seconds = time.perf_counter() - began
        batch = int(len(self.branches) + self.drafts.lengths.sum())
        return [
            Round(
                logits=tuple(logits),
                drafted=int(self.drafts.lengths[row]),
                accepted=int(self.accepted[row]),
                end_within=bool(self.ended[row]),
                schedule=schedule,
                anchor=int(self.branches.position[row]),
                step=step,
                tokens_in_batch=batch,
                seconds=seconds,
            )
            for row, logits in zip(rows.tolist(), confidence.tolist(), strict=True)
        ]


def _ends(settings: Sampling, eos: frozenset[int]) -> frozenset[int]:
    """Ids that end an answer under these settings; stop strings are not seen here."""
    own: Sequence[int] = settings.stop_ids
    return frozenset(own) | (frozenset() if settings.ignore_eos else eos)


# What the rounds of a speculator came to, by position of the block.

DECAY = 0.97
"""How much of what was seen lately still counts a round later."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class SpeculationStats:
    """Counts over branches and rounds.

    ``rounds`` are rounds of single branches, ``passes`` of whole batches, ``plain`` steps of whole batches
    without drafts. ``drafted`` tokens were proposed, ``verified`` sent through the model, ``accepted`` kept.
    ``reached`` and ``kept_tokens`` [g] are rounds in which the draft at a position was verified after all
    before it were kept, and was kept too.
    """

    rounds: int
    passes: int
    plain: int
    drafted: int
    verified: int
    accepted: int
    reached: Int[np.ndarray, "g"]
    kept_tokens: Int[np.ndarray, "g"]

    @property
    def tau(self) -> float | None:
        """Tokens of a round, the one after the drafts included; None before the first."""
        return 1.0 + self.accepted / self.rounds if self.rounds else None

    @property
    def accept_rate(self) -> list[float | None]:
        """Share of drafts at position 1, 2, ... kept, of those reached; None where none was."""
        return [int(k) / int(n) if n else None for k, n in zip(self.kept_tokens, self.reached, strict=True)]

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "rounds": self.rounds,
            "passes": self.passes,
            "plain_steps": self.plain,
            "drafted": self.drafted,
            "verified": self.verified,
            "accepted": self.accepted,
            "tau": self.tau,
            "accept_rate": self.accept_rate,
        }


@final
class Tally:
    """Counts rounds as they end, and how often drafts survived lately."""

    def __init__(self, g: int) -> None:
        self.g = g
        # By law: of branches that are drawn with chance, and of greedy ones.
        self._lately = np.zeros((2, 2, g))
        self._passes = [0, 0]
        self.reset()

    def reset(self) -> None:
        """Begin to count anew. How drafts fared lately stays known."""
        self._counts = dict.fromkeys(("rounds", "passes", "plain", "drafted", "verified", "accepted"), 0)
        self._reached = np.zeros(self.g, dtype=np.int64)
        self._kept = np.zeros(self.g, dtype=np.int64)

    @property
    def observed(self) -> bool:
        """Whether any round was counted yet, before a reset too."""
        return any(self._passes)

    def plain(self) -> None:
        """A step without drafts."""
        self._counts["plain"] += 1

    def round(
        self,
        drafted: int,
        lengths: Ints,
        accepted: Ints,
        ended: NDArray[np.bool_],
        greedy: NDArray[np.bool_] | None = None,
    ) -> None:
        """A round of branches [n]: how many drafts were verified and kept, and which branches ended in it.

        ``greedy``: which of them are (None: none). What was drafted beyond an end was neither kept nor
        refused, so it does not count.
        """
        place = np.arange(self.g)
        reached = (place <= accepted[:, None]) & (place < lengths[:, None])
        reached &= ~(ended[:, None] & (place == accepted[:, None]))
        kept = place < accepted[:, None]
        counts = self._counts
        counts["rounds"] += len(lengths)
        counts["passes"] += 1
        counts["drafted"] += drafted
        counts["verified"] += int(lengths.sum())
        counts["accepted"] += int(accepted.sum())
        self._reached += reached.sum(axis=0)
        self._kept += kept.sum(axis=0)
        cold = np.zeros(len(lengths), dtype=np.bool_) if greedy is None else greedy
        for law, mine in enumerate((~cold, cold)):
            if mine.any():
                self._passes[law] += 1
                seen = np.stack([reached[mine].sum(axis=0), kept[mine].sum(axis=0)])
                self._lately[law] = DECAY * self._lately[law] + seen

    def recent(
        self, credit: float = 0.0, held: HeldOut | None = None, greedy: float = 0.0
    ) -> Float[np.ndarray, "g"] | None:
        """How often the first j drafts survived lately; None before the first round.

        ``greedy`` is the share of such branches: they are counted apart. A position that was not reached
        lately is taken to be as good as the one before it. ``credit``: so many rounds stand before the first,
        in which drafts fared as those that were ``held`` out (unknown: all kept); they fade as all rounds do.
        """
        found = [
            (share, self._survival(law, credit, held))
            for law, share in enumerate((1.0 - greedy, greedy))
            if share > 0
        ]
        known = [(share, values) for share, values in found if values is not None]
        if not known:
            return None
        mixed = np.sum([share * values for share, values in known], axis=0)
        return np.asarray(mixed / sum(share for share, _ in known))

    def _survival(self, law: int, credit: float, held: HeldOut | None) -> Float[np.ndarray, "g"] | None:
        """That of one law; what was never seen of it is taken from the other where nothing is credited."""
        rates = None if held is None else held.of(bool(law))
        before = np.ones(self.g) if rates is None else np.asarray(rates[: self.g], dtype=np.float64)
        seen = self._lately[law if credit or self._passes[law] else 1 - law]
        weight = credit * DECAY ** self._passes[law]
        reached, kept = seen[0] + weight, seen[1] + weight * before
        # Counts fade by a factor and never come to 0: below this nothing is left of what was seen.
        if reached[0] < 1e-6:
            return None
        known = reached > 1e-6
        last = np.maximum.accumulate(np.where(known, np.arange(self.g), 0))
        chance = (kept / np.where(known, reached, 1.0))[last]
        return np.asarray(np.cumprod(np.clip(chance, 0.0, 1.0)))

    @property
    def stats(self) -> SpeculationStats:
        """What was counted so far."""
        return SpeculationStats(**self._counts, reached=self._reached.copy(), kept_tokens=self._kept.copy())


Listener: TypeAlias = Callable[[Sequence[Round]], None]
RejectedListener: TypeAlias = Callable[[Sequence[Rejected]], None]

RULES: Final[tuple[str, ...]] = get_args(Rule)
CREDIT: Final = 4.0
"""So many rounds are believed of a drafter before its first: kept as held-out drafts were, else all kept."""
PROBE: Final = 4
"""So many branches are drafted for to see whether drafting pays for a large batch, first or again."""
_KNOWN = 1024


@final
@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A group's share of a round: its drafts, and what they are settled with."""

    group: Group
    chain: Chain
    chances: RoundChances | Noise

    def some(self, part: Ints) -> Part:
        """That of some rows."""
        return Part(self.group.some(part), self.chain.some(part), self.chances.some(part))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What is kept of a round until it is settled; ``rows`` [n] are those drafted for.

    ``confidence`` [n, g] are logits, None where nobody reads them; ``began`` is when the round did.
    """

    parts: list[Part]
    rows: Ints
    confidence: NDArray[np.float64] | None
    began: float


@final
class ModelSpeculator:
    """Drafts with a trained drafter, for one batch of branches.

    ``rule`` is ``rejection`` (most drafts kept, the distribution of plain decoding) or ``coupled`` (the
    tokens of plain decoding). Without a ``scheduler`` every draft is verified; with one it says how many, and
    whether a round drafts at all. ``eos`` are the ids that end an answer. ``on_rounds`` hears every round
    that was verified at full length, ``on_rejected`` what was verified and not said.

    Under ``rejection`` with a scheduler a request's lengths depend on the drafts beside it, which must not be
    drawn with its numbers: of living requests with equal noise each drafts with numbers of its own. Plain
    steps keep the request's noise; draws whose distribution must be exact under shared noise want
    ``coupled``.

    Raises:
        BadInput: an unknown rule, no draft token, or a calibration of a shorter block.
        CannotDo: a schedule that would leak tokens of this confidence head.
    """

    def __init__(
        self,
        draft: Proposer,
        *,
        rule: Rule = "rejection",
        scheduler: Scheduler | None = None,
        calibration: SequentialTemperatureScaling | None = None,
        max_draft_tokens: int | None = None,
        eos: frozenset[int] = frozenset(),
        on_rounds: Listener | None = None,
        on_rejected: RejectedListener | None = None,
    ) -> None:
        config = draft.config
        _check(rule, max_draft_tokens, calibration, config.block)
        check_head = getattr(scheduler, "check_head", None)
        # The coupled rule's tokens are those of plain decoding whatever is verified, so no schedule can leak.
        if check_head is not None and rule == "rejection":
            check_head(config.confidence_reads_token)
        self.draft_model, self.rule, self.scheduler, self.calibration = draft, rule, scheduler, calibration
        self.block = min(max_draft_tokens or config.block, config.block)
        self.eos, self.on_rounds, self.on_rejected = eos, on_rounds, on_rejected
        self.tally = Tally(self.block)
        self._linears = PackedLinears(nn.ModuleList([draft, draft.ends.head]))
        self._context = DraftContext(draft)
        self._plain_chances = PlainChances()
        self._laws: dict[int, Sampling] = {}
        self._keys: dict[int, tuple[NoiseKey, int]] = {}
        self._twins: set[tuple[NoiseKey, int]] = set()
        self._known: dict[Sampling, Sampling] = {}
        self._settled: tuple[Drafts, Ints] | None = None
        self._refused = False
        self._step = 0

    def fresh(self, on_rejected: RejectedListener | None = None) -> ModelSpeculator:
        """One more for another batch: without branches, counted together with this one."""
        other = ModelSpeculator(
            self.draft_model,
            rule=self.rule,
            scheduler=self.scheduler,
            calibration=self.calibration,
            max_draft_tokens=self.block,
            eos=self.eos,
            on_rounds=self.on_rounds,
            on_rejected=on_rejected,
        )
        other.tally, other._linears = self.tally, self._linears
        return other

    # -- the seam --------------------------------------------------------------------------------

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The hidden states that the drafter's context features are made of."""
        return self.draft_model.config.target_layers

    @property
    def window(self) -> int:
        """How many of a prompt's last tokens a block sees, at most."""
        return self._context.reach

    @property
    def stats(self) -> SpeculationStats:
        """Counts since the last reset."""
        return self.tally.stats

    @property
    def bytes(self) -> int:
        """Memory of the draft context."""
        return self._context.bytes

    def join(self, request_ids: Ints, prompts: Sequence[IntArray], states: Sequence[Tensor]) -> None:
        """New branches; those whose states are one tensor share what is computed of it."""
        self._context.join(request_ids, prompts, states)

    def leave(self, request_ids: Ints) -> None:
        """Branches that ended or were cancelled."""
        self._context.leave(request_ids)
        self._plain_chances.forget(request_ids)
        for request_id in request_ids.tolist():
            self._laws.pop(request_id, None)
            if request_id in self._keys:
                self._twins.discard(self._keys.pop(request_id))

    @torch.inference_mode()
    def draft(self, branches: ActiveRows) -> Drafts | None:
        """Proposals for every branch, or None where a plain step is better."""
        began = time.perf_counter()
        self._settled = None
        limits = np.minimum(branches.room - 1, self.block)
        if not len(branches) or int(limits.max()) < 1:
            return None
        cold = _greedy(branches.settings)
        if not self.pays(len(branches), float(cold.mean())):
            self._refused = True
            return None
        rows = None
        known = self.tally.observed or self.draft_model.held_out.known
        unknown = self.scheduler is not None and not known
        if (self._refused or unknown) and len(branches) > PROBE:
            # Those with the most room tell the most; rows must ascend, as :meth:`Spread.of_rows` reads them.
            rows = np.sort(np.argsort(-limits, kind="stable")[:PROBE])
        self._refused = False
        drafts = self._propose(branches, limits, rows, began)
        return drafts if drafts.lengths.any() else None

    @torch.inference_mode()
    def settle(self, branches: ActiveRows, drafts: Drafts, logits: Tensor) -> list[Settled]:
        """What each branch says, given the pass's logits [sum of 1 + lengths, V], branch after branch.

        A branch of which no draft was verified says what plain decoding says.
        """
        proposal: Proposal = drafts.distribution
        bare = np.flatnonzero(drafts.lengths == 0)
        spread = Spread.of(drafts.lengths)
        found: list[Settled | None] = [None] * len(branches)
        for whole in [*proposal.parts, *self._bare(branches, bare)]:
            # A row that was drafted for and of which nothing is verified comes again, in a bare part.
            keep = drafts.lengths[whole.group.rows] > 0 if whole.chain.tokens.shape[1] else None
            part = whole if keep is None or keep.all() else whole.some(np.flatnonzero(keep))
            rows = part.group.rows
            if not len(rows):
                continue
            mine = logits if part.group.whole else logits[spread.of_rows(rows).to(logits.device)]
            turn = Turn(part.group, branches.generated[rows], drafts.lengths[rows], mine)
            if isinstance(part.chances, RoundChances):
                settled = settle_rejection(turn, part.chain, part.chances)
            else:
                settled = settle_coupled(turn, part.chain, part.chances)
            for row, item in zip(rows.tolist(), settled, strict=True):
                found[row] = item
        done = [item for item in found if item is not None]
        self._settled = drafts, np.array([item.accepted for item in done], dtype=np.int64)
        return done

    def fed(self, branches: ActiveRows, spread: Ints, kept_tokens: Ints, states: Tensor) -> None:
        """Hidden states of the tokens just fed: noted, and looked at when a draft needs them."""
        self._step += 1
        self._context.note(branches, spread, kept_tokens, states)
        if self._settled is None:
            self.tally.plain()
            return
        drafts, accepted = self._settled
        self._settled = None
        # The decoder keeps fewer than were accepted where a stop string or a limit ends the answer.
        self._count(Outcome.of(branches, drafts, np.minimum(accepted, kept_tokens - 1), self.eos))

    def pays(self, requests: int, greedy: float) -> bool:
        """Whether the schedule would draft for so many, by the past alone; ask once a round.

        ``greedy`` is the share of them that are. Before the first rounds of a distribution drafts are
        believed to fare as they did on such answers held out of the drafter's training; where that is not
        known, all are believed to be kept.
        """
        if self.scheduler is None:
            return True
        return self.scheduler.drafts(requests, self.tally.recent(CREDIT, self.draft_model.held_out, greedy))

    # -- one round -------------------------------------------------------------------------------

    def _propose(self, branches: ActiveRows, limits: Ints, rows: Ints | None, began: float) -> Drafts:
        """Drafts for ``rows`` (None: all), as many as can be said, and how many of them are verified."""
        chosen = np.arange(len(branches)) if rows is None else rows
        count = int(limits[chosen].max())
        model, device = self.draft_model, self.draft_model.ends.device
        with self._linears.attached():
            context = self._context.of(branches.request_id, rows)
            anchors = torch.from_numpy(branches.newest[chosen]).to(device)
            places = torch.from_numpy(branches.position[chosen]).to(device)
            pairs = list(zip(context.keys, context.values, strict=True))
            hidden = model.block(anchors, places, pairs, context.visible)[:, :count]
            state = model.start(places, pairs, context.visible) if isinstance(model, EagleDraft) else None
            parts = self._draw(branches, chosen, Block(anchors, hidden, model.base_logits(hidden), state))
            tokens = np.zeros((len(branches), count), dtype=np.int64)
            for part in parts:
                tokens[part.group.rows] = part.chain.tokens.cpu().numpy()
            confidence = self._confidence(hidden, anchors, tokens[chosen])
        lengths = np.zeros(len(branches), dtype=np.int64)
        lengths[chosen] = self._lengths(branches, chosen, confidence, limits[chosen])
        return Drafts(tokens, lengths, Proposal(parts, chosen, confidence, began))

    def _draw(self, branches: ActiveRows, chosen: Ints, block: Block) -> list[Part]:
        """The chains of the chosen rows, group by group of equal distributions."""
        found = []
        count = block.base.shape[1]
        for group in grouped(self._settings_of(branches, chosen)):
            rows = chosen[group.rows]
            mine = block if group.whole else block.some(group.rows)
            named = Group(group.settings, rows, len(rows) == len(branches))
            if self.rule == "coupled" or group.settings.temperature == 0.0:
                noise = self._plain(branches, named, count)
                part = Part(named, self._chain(branches, named, mine, noise), noise)
            else:
                # Always the numbers of a whole block, never of ``count``: that is the most room of any row,
                # and a number's address must not depend on the rows beside it.
                chances = round_chances(self._keys_of(branches, rows), branches.generated[rows], self.block)
                noise = Noise(torch.from_numpy(chances.draft.copy()).to(block.base.device), gumbel=False)
                part = Part(named, self._chain(branches, named, mine, noise), chances)
            found.append(part)
        return found

    def _chain(self, branches: ActiveRows, group: Group, block: Block, noise: Noise) -> Chain:
        step = self.draft_model.next_logits
        return draw_chain(step, block, group, branches.generated[group.rows], noise, self.rule)

    def _plain(self, branches: ActiveRows, group: Group, count: int) -> Noise:
        """The noise of plain decoding for the next ``count`` + 1 tokens of a group."""
        settings, rows = group.settings, group.rows
        if settings.temperature == 0.0:
            return Noise(None, gumbel=False)
        generated, device = branches.generated[rows], self.draft_model.ends.device
        keys = [branches.noise[row] for row in rows]
        if settings.coupling == "gumbel":
            values = plain_gumbels(keys, generated, count + 1, self.draft_model.config.vocabulary)
            return Noise(torch.from_numpy(values).to(device), gumbel=True)
        found = self._plain_chances.uniforms(branches.request_id[rows], keys, generated, count + 1)
        return Noise(torch.from_numpy(found).to(device), gumbel=False)

    def _bare(self, branches: ActiveRows, rows: Ints) -> list[Part]:
        """Branches of which no draft is verified, with what plain decoding draws their next token with."""
        found = []
        for group in grouped(self._settings_of(branches, rows)) if len(rows) else []:
            mine = rows[group.rows]
            named = Group(group.settings, mine, len(mine) == len(branches))
            none = Chain(torch.zeros((len(mine), 0), dtype=torch.int64), None, None)
            found.append(Part(named, none, self._plain(branches, named, 0)))
        return found

    def _keys_of(self, branches: ActiveRows, rows: Ints) -> list[NoiseKey]:
        """What the rounds of each row are drawn with; where lengths are scheduled no two rows share it."""
        if self.scheduler is None or getattr(self.scheduler, "mode", None) == "fixed":
            return [branches.noise[row] for row in rows]
        found = []
        for row in rows.tolist():
            request_id = int(branches.request_id[row])
            if request_id not in self._keys:
                key, number = branches.noise[row], 0
                while (key, number) in self._twins:
                    number += 1
                self._keys[request_id] = key, number
                self._twins.add((key, number))
            key, number = self._keys[request_id]
            own = key if number == 0 else replace(key, stream=stream_of("speculate twin", key.stream, number))
            found.append(own)
        return found

    def _settings_of(self, branches: ActiveRows, rows: Ints) -> list[Sampling]:
        """What each row's tokens are drawn by: one object for all rows whose distributions are equal."""
        found = []
        for row in rows.tolist():
            request_id = int(branches.request_id[row])
            sampling = self._laws.get(request_id)
            if sampling is None:
                if len(self._known) > _KNOWN:
                    self._known.clear()
                # What ends an answer changes no distribution: rows that differ in that alone are drawn
                # together.
                plain = branches.settings[row]
                sampling = plain.but(
                    stop=(), stop_ids=(), ignore_eos=False, max_tokens=max(len(plain.forced), 1)
                )
                sampling = self._laws[request_id] = self._known.setdefault(sampling, sampling)
            found.append(sampling)
        return found

    @property
    def scheduling(self) -> Json:
        """What decides how many drafts are verified: the schedule (None: all of them) and its calibration."""
        told: Json | None = None
        if self.scheduler is not None:
            plain = getattr(self.scheduler, "to_json", None)
            told = plain() if plain is not None else {"mode": type(self.scheduler).__name__}
        known = None if self.calibration is None else list(self.calibration.temperatures)
        return {"schedule": told, "calibration": known}

    # -- how many drafts are verified ------------------------------------------------------------

    def _confidence(self, hidden: Tensor, anchors: Tensor, tokens: Ints) -> NDArray[np.float64] | None:
        """Logits [n, count] that each draft survives; None where nobody would read them."""
        model = self.draft_model
        if not model.config.confidence or (self.scheduler is None and self.on_rounds is None):
            return None
        drafted = torch.from_numpy(tokens).to(anchors.device)
        before = torch.cat([anchors[:, None], drafted[:, :-1]], dim=1)
        return model.confidence(hidden, before).double().cpu().numpy()

    def _lengths(
        self, branches: ActiveRows, rows: Ints, confidence: NDArray[np.float64] | None, limits: Ints
    ) -> Ints:
        """How many drafts of each drafted row are verified."""
        if self.scheduler is None:
            return limits
        others = len(branches) - len(rows)
        survival = self._survival(
            confidence, _greedy([branches.settings[r] for r in rows]), int(limits.max())
        )
        for place, row in enumerate(rows.tolist()):
            # Forced tokens are said whatever the drafter thinks of them.
            sure = len(branches.settings[row].forced) - int(branches.generated[row])
            if sure > 0:
                survival[place, :sure] = 1.0
        lengths = np.minimum(self.scheduler.plan(survival, limits, others), limits)
        # Without a confidence head a probe that verifies nothing could never learn that times have changed.
        return limits if others and confidence is None and not lengths.any() else lengths

    def _survival(
        self, confidence: NDArray[np.float64] | None, greedy: NDArray[np.bool_], count: int
    ) -> NDArray[np.float64]:
        """Chances [rows, count] that the first j drafts are all kept: the head's, or those of late."""
        if confidence is None:
            found = [self.tally.recent(greedy=float(cold)) for cold in (False, True)]
            rates = [np.ones(count) if recent is None else recent[:count] for recent in found]
            return np.asarray(np.stack(rates)[greedy.astype(int)], dtype=np.float64)
        known = () if self.calibration is None else self.calibration.temperatures
        return SequentialTemperatureScaling(known[:count]).apply(confidence)

    # -- what is told ----------------------------------------------------------------------------

    def _count(self, outcome: Outcome) -> None:
        """Count a round, and tell who wants to know."""
        drafts = outcome.drafts
        proposal: Proposal = drafts.distribution
        drafted = len(proposal.rows) * drafts.tokens.shape[1]
        cold = _greedy(outcome.branches.settings)
        self.tally.round(drafted, drafts.lengths, outcome.accepted, outcome.ended, cold)
        if self.on_rejected is not None:
            self.on_rejected(outcome.rejected())
        confidence = proposal.confidence
        # A block that was cut for lack of room has no logits of its last positions.
        if self.on_rounds is not None and confidence is not None and confidence.shape[1] == self.block:
            mode = None if self.scheduler is None else str(getattr(self.scheduler, "mode", "scheduler"))
            self.on_rounds(outcome.rounds(proposal.rows, confidence, mode, self._step, proposal.began))


def _greedy(settings: Sequence[Sampling]) -> NDArray[np.bool_]:
    """Which of these distributions leave nothing to chance."""
    return np.array([sampling.temperature == 0.0 for sampling in settings], dtype=np.bool_)


def _check(rule: str, most: int | None, calibration: SequentialTemperatureScaling | None, block: int) -> None:
    if rule not in RULES:
        raise BadInput(f"there is no acceptance rule {rule!r}", hint=f"rules: {', '.join(RULES)}")
    if most is not None and most < 1:
        raise BadInput(f"max_draft_tokens is {most}; it must be at least 1")
    if calibration is not None and 0 < len(calibration.temperatures) < block:
        raise BadInput(
            f"the calibration knows {len(calibration.temperatures)} positions of {block}",
            hint="calibrate this drafter",
        )
