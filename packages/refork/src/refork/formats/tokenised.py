"""Token ids of a path that is read message by message, as a policy's template and tokenizer make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.policies.base import Policy
from refork.policies.renderable import render_delta, turn_tokens
from refork.types import IntArray, Json, Message, token_array

#: The key of ``Node.extra`` that says what token ids of an import are worth.
MARK: Final = "token_ids"
_BOUNDARY: Final = "at the end of a task or an observation: the messages up to there are rendered anew"
_REWRITES: Final = "this policy's template rewrites what came before, so later turns have no ids of their own"
_SILENT: Final = "the log does not have all that the policy was shown or said"


@final
class TokenContext:
    """The context of a path so far, in messages and in token ids; without a policy nothing is tokenised.

    What cannot be rendered costs no more than its ids: from there on nothing has token ids, until a context
    begins anew, and each such node says why and where it can be forked. Ids that stand for something the
    model never saw in that form say so too; both under ``token_ids`` in ``extra``.
    """

    def __init__(self, policy: Policy | None, tools: Sequence[Json] = ()) -> None:
        self._policy = policy
        self._clean = getattr(policy, "clean", None)
        self._tools = list(tools)
        self.begin()

    @property
    def tokenizer(self) -> str | None:
        """Digest of the tokenizer that texts are tokenised with; None where none is."""
        return None if self._policy is None else self._policy.card.tokenizer

    def begin(self) -> None:
        """Forget what came before: a context is written anew."""
        self._history: list[Message] = []
        self._context: IntArray = token_array([])
        self._why: str | None = None

    def offer(self, tools: Sequence[Json]) -> None:
        """The tools that the policy is offered, before it is shown anything."""
        self._tools = list(tools)

    def lose(self, why: str = _SILENT) -> None:
        """Something was shown or said that has no token ids."""
        self._why = self._why or why

    def given_fields(self, messages: Sequence[Message]) -> Json:
        """The fields of a draft that shows messages, which are of the context from here on."""
        if self._policy is None:
            return {}
        if self._why is not None:
            return self._unknown()
        if not messages:
            return {"tokens": token_array([])}
        made = [dict(message) for message in messages]
        if self._tools and not self._history:
            # Templates write tools once, at the beginning, so they go with the first message.
            made[0] = {**made[0], "tools": self._tools}
        if self._clean is not None:
            made = [self._clean(message) for message in made]
        try:
            rendered, notes = render_delta(self._policy, self._history, self._context, made)
        except (BadInput, CannotDo) as error:
            self.lose(error.what)
            return self._unknown()
        if rendered.rewrites:
            self.lose(_REWRITES)
            return self._unknown()
        self._history.extend(made)
        self._context = np.concatenate([self._context, rendered.tokens]).astype(np.int32)
        fields: Json = {"tokens": rendered.tokens}
        return fields | ({"extra": {MARK: _approximate(notes)}} if notes else {})

    def generated_fields(self, message: Message) -> Json:
        """The fields of a draft that says a message; :meth:`goes_on` makes it part of the context.

        ``text`` is among them where the ids spell another one than the message's own: that of its calls.
        """
        if self._policy is None:
            return {}
        if self._why is not None:
            return self._unknown()
        clean = message if self._clean is None else self._clean(message)
        turn = turn_tokens(self._policy, clean, self._tools)
        fields: Json = {"tokens": turn.tokens, "offsets": turn.offsets}
        fields |= {"text": turn.text} if turn.calls is not None or turn.approximate else {}
        mark = _approximate(turn.approximate) if turn.approximate else {}
        mark |= {"calls": turn.calls} if turn.calls is not None else {}
        return fields | ({"extra": {MARK: mark}} if mark else {})

    def goes_on(self, message: Message, fields: Json) -> Json:
        """Go on from what was said, with the fields that :meth:`generated_fields` gave."""
        if self._policy is not None and self._why is None:
            self._history.append(message if self._clean is None else self._clean(message))
            self._context = np.concatenate([self._context, fields["tokens"]]).astype(np.int32)
        return fields

    def _unknown(self) -> Json:
        return {"extra": {MARK: {"none": self._why, "fork": _BOUNDARY}}}


def _approximate(notes: Sequence[str]) -> Json:
    return {"approximate": list(notes)}


def lacking(policy: Policy | None) -> str:
    """What a log of texts has of no token, once a policy tokenised it or not."""
    return "token ids and log-probs" if policy is None else "log-probs"
