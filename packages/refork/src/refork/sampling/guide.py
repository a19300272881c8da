"""Which tokens may follow what was said, so that a turn becomes a text of its grammar.

Every token is allowed after which some text of the grammar is still possible, however the tokenizer itself
would have cut that text; so a restricted distribution is the plain one given the grammar, token by token. The
end may come where the text is whole. The work is done by llguidance (extra ``grammar``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo, InternalError, MissingExtra
from refork.sampling.grammar import Grammar
from refork.types import IntArray

Mask = NDArray[np.bool_]

#: Between the parts of a JSON text: nothing, a space, or a line and its indent. Unbounded, it never ends.
WHITESPACE: Final = r"(?: |\n[ \t]{0,64})?"
_OPTIONS = re.compile(r"^\s*%llguidance\s*(?=\{)", re.MULTILINE)
_SAID: Final = 300


@final
class Guide:
    """One turn on its way: asked for the tokens that may follow, and told which did.

    ``ends`` are the ids that end the turn; without any it is over where nothing more can follow.
    """

    def __init__(self, matcher: Any, width: int, vocabulary: int, ends: Collection[int]) -> None:
        self._matcher = matcher
        self._width, self._vocabulary = width, vocabulary
        self._ends = np.array(sorted(ends), dtype=np.int64)
        self._known: Mask | None = None
        self._wrong: str | None = None

    def allowed(self) -> Mask:
        """Which tokens may come next, [width].

        Raises:
            BadInput: what was said is not of the grammar, or nothing may follow.
        """
        if self._known is None:
            self._known = self._mask()
        return self._known

    def take(self, token: int) -> None:
        """This token was said, and did not end the turn."""
        self._known = None
        if self._wrong is None and not self._matcher.consume_token(token):
            self._wrong = f"token {token} breaks the grammar"

    @property
    def over(self) -> bool:
        """Whether the turn ends here without an id that says so."""
        if len(self._ends) or self._wrong is not None or not self._matcher.is_accepting():
            return False
        return not self._bits()[: self._vocabulary].any()

    def _bits(self) -> NDArray[np.uint8]:
        """A bit per token, and one more: whether the text may end."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(packed, bitorder="little")[: self._vocabulary + 1]

    def _mask(self) -> Mask:
        if self._wrong is not None:
            raise BadInput(self._wrong, where="grammar", hint="what was said before must be of it too")
        bits = self._bits()
        if self._matcher.is_error():
            raise BadInput(f"nothing may follow: {_first(self._matcher.get_error())}", where="grammar")
        mask = np.zeros(self._width, dtype=np.bool_)
        mask[: self._vocabulary] = bits[:-1]
        # The matcher knows one made-up end behind the vocabulary; every id that ends a turn stands for it.
        mask[self._ends] = bits[-1]
        if not mask.any():
            raise BadInput("nothing may follow, and no token ends the turn", where="grammar")
        return mask


def masks(
    guides: Mapping[int, Guide], rows: int, width: int, barred: Callable[[int], Collection[int]] | None = None
) -> tuple[Mask, dict[int, str]]:
    """What each of some rows may say, [rows, width], all where it has no guide; why some may say nothing.

    ``barred`` are tokens that a row must not say for other reasons. A row that may say nothing is left free.
    """
    found = np.ones((rows, width), dtype=np.bool_)
    wrong: dict[int, str] = {}
    for row, guide in guides.items():
        try:
            allowed = guide.allowed()
        except BadInput as error:
            wrong[row] = str(error)
            continue
        out = list(barred(row)) if barred is not None else []
        if out and not np.delete(allowed, out).any():
            wrong[row] = "every token that the grammar allows here is banned"
            continue
        found[row] = allowed
    return found, wrong


@final
class Guides:
    """A tokenizer's vocabulary, ready to be held to grammars.

    ``tokens`` are the bytes of every token, ``special`` those that add no text; masks have ``width`` places,
    of which the tokens are the first. Compiled grammars are kept, the last 64.

    Raises:
        MissingExtra: llguidance is not installed (extra ``grammar``).
    """

    def __init__(self, tokens: Sequence[bytes], special: Collection[int], width: int) -> None:
        self._tokenizer = _tokenizer(tokens, special)
        self._vocabulary, self._width = len(tokens), width
        self._compiled: dict[Grammar, Any] = {}

    def factory(self, grammar: Grammar, ends: Collection[int]) -> Callable[[IntArray], Guide]:
        """What makes a guide of a turn, given the tokens that it has said already.

        Raises:
            BadInput: the grammar cannot be compiled.
        """
        matcher = self._compiled.get(grammar)
        if matcher is None:
            matcher = self._compile(grammar)
            if len(self._compiled) >= 64:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[grammar] = matcher

        def make(said: IntArray) -> Guide:
            # A matcher is moved by every token it takes; the compiled one has to stay at the beginning.
            guide = Guide(matcher.deep_copy(), self._width, self._vocabulary, ends)
            for token in said.tolist():
                guide.take(token)
            return guide

        return make

    def _compile(self, grammar: Grammar) -> Any:
        from llguidance import LLMatcher

        source = LLMatcher.grammar_from_lark(source_of(grammar))
        matcher = LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        return matcher


def guides_of(tokens: Sequence[bytes] | None, special: Collection[int], width: int) -> Guides:
    """Guides for a tokenizer whose tokens are ``tokens``.

    Raises:
        CannotDo: the bytes of its tokens are not known.
        MissingExtra: as :class:`Guides`.
    """
    if tokens is None:
        raise CannotDo(
            "this tokenizer's tokens depend on their neighbours, so no grammar can be held to",
            hint="use a model whose tokenizer joins bytes, as nearly all do",
        )
    return Guides(tokens, special, width)


def check_grammar(grammar: Grammar) -> None:
    """Refuse what could be held to with no tokenizer.

    Raises:
        BadInput: the grammar cannot be compiled.
        MissingExtra: as :class:`Guides`.
    """
    try:
        from llguidance import LLMatcher
    except ImportError as error:
        raise MissingExtra("llguidance", "grammar") from error
    wrong, said = LLMatcher.validate_grammar_with_warnings(LLMatcher.grammar_from_lark(source_of(grammar)))
    if wrong:
        raise _refused(grammar, said[0])


def _refused(grammar: Grammar, error: str) -> BadInput:
    return BadInput(
        f"the {grammar.kind.replace('_', ' ')} cannot be held to: {_first(error)}", where="grammar"
    )


def source_of(grammar: Grammar) -> str:
    """A grammar as Lark text, in which every split of a text into tokens counts."""
    if grammar.kind == "lark":
        return _unforced(grammar.text)
    if grammar.kind == "regex":
        from llguidance import regex_to_lark

        return _unforced(f"start: /{regex_to_lark(grammar.text)}/")
    return _unforced(f"start: %json {json.dumps(with_style(json.loads(grammar.text)))}")


def with_style(schema: dict[str, Any], **style: Any) -> dict[str, Any]:
    """A schema with how its JSON is written, where it does not say that itself (``x-guidance``)."""
    given = schema.get("x-guidance")
    return schema | {
        "x-guidance": (style or {"whitespace_pattern": WHITESPACE})
        | (given if isinstance(given, dict) else {})
    }


def _unforced(lark: str) -> str:
    """The grammar with llguidance's own choice among equal splits switched off."""
    found = _OPTIONS.search(lark)
    if found is None:
        return f'%llguidance {{"no_forcing": true}}\n{lark}'
    try:
        options, end = json.JSONDecoder().raw_decode(lark, found.end())
    except ValueError as error:
        raise BadInput(f"the options behind %llguidance are not JSON: {error}", where="grammar") from error
    return lark[: found.end()] + json.dumps(options | {"no_forcing": True}) + lark[end:]


def _tokenizer(tokens: Sequence[bytes], special: Collection[int]) -> Any:
    """The vocabulary as llguidance takes it, with one token more that stands for the end."""
    try:
        from llguidance import LLTokenizer
    except ImportError as error:
        raise MissingExtra("llguidance", "grammar") from error
    vocabulary: Any = _Vocabulary(tokens, special)
    return LLTokenizer(vocabulary)


@final
class _Vocabulary:
    """What llguidance reads of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Collection[int]) -> None:
        self.eos_token_id = len(tokens)
        self.tokens = [*tokens, b"<|end of the text|>"]
        self.special_token_ids = [*special, len(tokens)]

    def __call__(self, text: str | bytes) -> list[int]:
        """No text is made into tokens: all splits count, so none is asked for."""
        raise InternalError("a grammar asked how a text is cut into tokens")


def _first(error: str) -> str:
    """What an error of llguidance says, without the state that it prints."""
    said = error.partition("\n<state>")[0].partition("\n<grammar>")[0].strip()
    return said if len(said) <= _SAID else f"{said[:_SAID]}…"
