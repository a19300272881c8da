"""Token ids of a walk that is read message by message, as a policy's template and tokenizer make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from ramify.core.policy.base import Policy
from ramify.core.tree.formats.openai_chat import OpenAIChat
from ramify.core.types import IntArray, Json, Message, token_array


@final
class TokenWalk:
    """The context of a walk so far, in messages and in token ids; without a policy nothing is tokenised.

    Where the log does not say what a policy was shown, nothing that follows has token ids, until a context
    begins anew.
    """

    def __init__(self, policy: Policy | None) -> None:
        self._chat = OpenAIChat(policy)
        self.tokenizer = self._chat.tokenizer
        self.begin()

    def begin(self) -> None:
        """Forget what came before: a context is written anew."""
        self._history: list[Message] = []
        self._context: IntArray = token_array([])
        self._known = self.tokenizer is not None

    def lose(self) -> None:
        """Something was shown or said that the log does not have."""
        self._known = False

    def shown(self, messages: Sequence[Message]) -> Json:
        """The fields of a draft that shows messages, which are of the context from here on.

        Raises:
            CannotDo: the policy's template rewrites what came before.
        """
        if not self._known:
            return {}
        fields = self._chat.shown_fields(self._history, self._context, messages)
        return self._added(messages, fields)

    def said(self, message: Message, where: str) -> Json:
        """The fields of a draft that says a message; :meth:`goes_on` makes it part of the context.

        Raises:
            CannotDo: a tool call, whose token ids cannot be known from its JSON.
        """
        return _tokens(self._chat.said_fields(message, where)) if self._known else {}

    def goes_on(self, message: Message, fields: Json) -> Json:
        """Go on from what was said, with the fields that :meth:`said` gave."""
        return self._added([message], fields) if self._known else {}

    def _added(self, messages: Sequence[Message], fields: Json) -> Json:
        self._history.extend(messages)
        self._context = np.concatenate([self._context, fields["tokens"]]).astype(np.int32)
        return _tokens(fields)


def _tokens(fields: Json) -> Json:
    """Token ids and where they end; the text is the reader's own."""
    return {name: value for name, value in fields.items() if name != "text"}


def lacking(policy: Policy | None) -> str:
    """What a log of texts has of no token, once a policy tokenised it or not."""
    return "token ids and log-probs" if policy is None else "log-probs"
