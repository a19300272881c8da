"""The state that a router reads: one hidden state of a small language model that has read the transcript."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.decoding.states import Layer
from refork.errors import BadInput, CannotDo, Mismatch
from refork.plain import content_hash
from refork.policies.local import LocalPolicy
from refork.policies.one_at_a_time import one_at_a_time
from refork.policies.whitebox import WhiteBox, white_box
from refork.progress import Progress, silent
from refork.types import IntArray, Json, Message, token_array
from refork_methods.route.runs import as_lines, raw_lines
from refork_methods.route.svf import SvfAdapter

Rendering: TypeAlias = Literal["raw", "chat"]
#: Chat messages, or a text that is their raw lines already.
Transcript: TypeAlias = str | Sequence[Message]
#: Transcripts that are read in one call.
_AT_ONCE = 64


@final
@dataclass(frozen=True, slots=True)
class StateFormat:
    """What exactly is read: how messages become tokens, and which token's state of which layer.

    ``raw`` renders lines of ``role: content``, ``chat`` the tokenizer's template. ``token_index`` counts from
    the end (-2: the last but one). ``window`` keeps that many tokens from the end (None: all). A head is
    fitted on one format and serves no other: its weights mean nothing there.
    """

    rendering: Rendering = "raw"
    token_index: int = -2
    layer: Layer = -1
    window: int | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if self.rendering not in ("raw", "chat"):
            raise BadInput(f"unknown rendering {self.rendering!r}", hint="'raw' or 'chat'")
        if self.token_index >= 0:
            raise BadInput(f"token_index is {self.token_index}; it counts from the end", hint="-2 is usual")
        if self.window is not None and self.window < -self.token_index:
            raise BadInput(f"a window of {self.window} tokens does not hold token {self.token_index}")

    @property
    def digest(self) -> str:
        """Digest of all of it, and of the version of the raw rendering."""
        return content_hash({"raw lines": 1, **asdict(self)})

    def to_json(self) -> Json:
        """Plain fields and the digest."""
        return {**asdict(self), "digest": self.digest}

    def require(self, recorded: StateFormat, where: str) -> None:
        """Refuse to serve a head that was fitted on another format.

        Raises: Mismatch naming what differs.
        """
        mine, theirs = asdict(self), asdict(recorded)
        differ = [
            f"{key} (fitted {theirs[key]!r}, here {mine[key]!r})" for key in mine if mine[key] != theirs[key]
        ]
        if differ:
            raise Mismatch(
                f"the head was fitted on states of another format: {'; '.join(differ)}",
                where=where,
                hint="read transcripts as the head's card says",
            )


@final
class RouterBackbone:
    """A local causal model as a reader of transcripts; its own text is never used.

    ``policy`` is public. ``digest`` is that of its weights before any offsets.

    Raises:
        CannotDo: the policy's hidden states cannot be read (a server's, a script's).
        BadInput: a format that is not allowed.
    """

    def __init__(
        self,
        policy: Any,
        *,
        rendering: Rendering = "raw",
        token_index: int = -2,
        layer: Layer = -1,
        window: int | None = None,
    ) -> None:
        self.policy: WhiteBox = white_box(policy)
        self._render = policy.render
        self.format = StateFormat(rendering, token_index, layer, window, self.policy.card.tokenizer)
        self.digest = self.policy.card.weights

    def tokens(self, transcript: Transcript) -> IntArray:
        """The ids of a transcript as it is read; a text is raw lines, or one user message.

        Raises: BadInput for one with fewer tokens than ``token_index`` needs; CannotDo for a text where a
        chat template renders (its messages are not to be told).
        """
        if self.format.rendering == "chat":
            if isinstance(transcript, str):
                raise CannotDo("a chat template renders messages, not a text", hint="read raw lines")
            ids = self._render([], token_array([]), list(transcript)).tokens
        else:
            text = as_lines(transcript) if isinstance(transcript, str) else raw_lines(transcript)
            ids = self.policy.encode(text)
        ids = ids if self.format.window is None else ids[-self.format.window :]
        if len(ids) < -self.format.token_index:
            raise BadInput(f"a transcript of {len(ids)} tokens has no token {self.format.token_index}")
        return token_array(ids)

    def upto(self, transcript: Transcript) -> IntArray:
        """The ids up to the one whose state is read: what follows it cannot reach it."""
        ids = self.tokens(transcript)
        return ids[: len(ids) + self.format.token_index + 1]

    def states(
        self, transcripts: Sequence[Transcript], progress: Progress = silent
    ) -> Float[np.ndarray, "transcripts width"]:
        """The hidden state of each transcript, float32. Threads wait for each other.

        Raises: BadInput as :meth:`tokens`, for none, or for one that is longer than the model's context.
        """
        if not transcripts:
            raise BadInput("there is no transcript to read")
        read = [self.upto(one) for one in transcripts]
        found: list[Float[np.ndarray, "width"]] = []
        for start in range(0, len(read), _AT_ONCE):
            progress("reading transcripts", start, len(read))
            part = read[start : start + _AT_ONCE]
            last = [len(ids) - 1 for ids in part]
            with one_at_a_time(self.policy):
                # One state of each transcript is kept: those of all its tokens would fill the memory.
                states = self.policy.hidden_states(part, (self.format.layer,), starts=last)
            found += [one[0, 0] for one in states]
        progress("reading transcripts", len(read), len(read))
        return np.stack(found)

    def adapter(self, matrices: Sequence[str] | None = None) -> SvfAdapter:
        """Singular-value offsets of the model.

        Raises: CannotDo for a policy whose weights are not at hand, or that reads with offsets already;
        BadInput as :class:`SvfAdapter`.
        """
        policy = self._local()
        if policy.card.weights != self.digest:
            raise CannotDo("this backbone reads with offsets already", hint="load the model again")
        return SvfAdapter(policy.model, matrices)

    @contextmanager
    def moved(self, adapter: SvfAdapter, offsets: Float[np.ndarray, "offsets"]) -> Iterator[None]:
        """While inside, transcripts are read by the model with these offsets."""
        policy = self._local()
        try:
            with adapter.applied(offsets):
                policy.refresh()
                yield
        finally:
            policy.refresh()

    def settle(self, head_offsets: Float[np.ndarray, "offsets"], matrices: Sequence[str]) -> None:
        """Read with these offsets from now on; ``digest`` stays that of the weights before them."""
        policy = self._local()
        self.adapter(matrices).settle(head_offsets)
        policy.refresh()

    def _local(self) -> LocalPolicy:
        if not isinstance(self.policy, LocalPolicy):
            raise CannotDo("singular values are moved in a model on this machine", hint="use an hf: policy")
        return self.policy
