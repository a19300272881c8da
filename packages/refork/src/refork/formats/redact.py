"""Secrets taken out of texts and JSON: what is replaced, and what is told of it.

Each secret becomes ``[redacted:KIND]``. What looks like a digest, a placeholder or code is left alone: 40
hexadecimal digits without a name beside them are a commit, not a key. Shapes of ours come first; what
:mod:`refork.formats.detected` knows beside them comes after.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from refork.formats.detected import STEMS as NAMED
from refork.formats.detected import by_form, by_name
from refork.formats.secret_shapes import (
    GIVEN,
    KEYS,
    NAMES,
    NEIGHBOURS,
    SHORTEST,
    STEMS,
    SecretKind,
    is_key,
)
from refork.policies.base import Policy, Rendered
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record, Remark
from refork.tree.score import Producer, Score
from refork.types import IntArray, Message

_MARK: Final = "[redacted:"
_ARRAYS: Final = ("tokens", "offsets", "logprobs", "logprobs_t1", "ref_logprobs", "entropy")
_LEAST: Final = 8
#: Characters of texts that are remembered as clean, and how many are.
_SHORT, _MANY = 64, 4096
_WORDS: Final = re.compile(rf"\S{{{SHORTEST},}}+")
#: What stands where a secret would, in documentation, templates and code.
_PLACEHOLDER: Final = re.compile(
    r"x{4,}|\*{3,}|\.{3}|redacted|example|placeholder|change.?me|dummy|sample|your[_\-. ]?|^my[_\-. ]"
    r"|\$\{[\w.:/-]+\}|\{\{[\s\w.:|$-]+\}\}|^\$\{|^\{\{|^[$%<]|^(?:process|os|self|this|config|settings|env|args|options|request|ctx|params)[.\[]"
    r"|^(?:test|fake|foo|bar|abc|none|null|nil|undefined|true|false|todo|tbd|secret|password|passwd|pass|pwd|token"
    r"|key|string|str|bytes|text|optional|required|hidden|masked|empty|default|unknown|user|admin|api_?key)[\W\d_]*$",
    re.IGNORECASE,
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: A path through names, or a call: code, not a value.
_CODE: Final = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*[:,]?$")
#: What stands before ``token`` or ``key`` where that is no secret.
_NOT_SECRET: Final = (
    *("page_", "page-", "next_", "next", "sync_", "continuation_", "eos_", "bos_", "pad_", "csrf_", "unk_"),
    *("mask_", "public_"),
)


@final
class Redactor:
    """Takes secrets out and counts them by kind in ``counts``."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: What token ids say, where a policy is at hand: ids that spell no secret may stay.
        self.decode: Callable[[IntArray], str] | None = None
        self._clean: str | None = None
        self._short: set[str] = set()

    def text(self, text: str) -> str:
        """A text without its secrets; the same object where there is none."""
        short = len(text) <= _SHORT
        if len(text) < _LEAST or text is self._clean or (short and text in self._short):
            return text
        made = self._searched(text)
        if made != text:
            return made
        # A node's text and its message are one text as a rule; keys, roles and names come again and again.
        self._clean = text
        if short and len(self._short) < _MANY:
            self._short.add(text)
        return text

    def _searched(self, made: str) -> str:
        words = _WORDS.findall(made)
        if words or "PRIVATE KEY" in made:
            # A key has no space within, so its hint stands in a long word.
            long = made if "PRIVATE KEY" in made else "\n".join(words)
            for shape in KEYS:
                if _holds(long, shape.hints):
                    made = self._without(made, shape)
        lower = made.lower()
        if _holds(lower, STEMS):
            for shape in NEIGHBOURS:
                if _holds(lower, shape.hints):
                    made = self._without(made, shape)
            if _holds(lower, GIVEN.hints):
                made = GIVEN.pattern.sub(self._given, made)
        # Rules of others come last: what ours took out is a mark by now, and is not found a second time.
        for kind, value in by_form(made) if words else ():
            if is_key(value) and not _filler(value):
                made = self._everywhere(made, kind, value)
        return self._beside_names(made) if _holds(lower, NAMED) else made

    def _beside_names(self, made: str) -> str:
        """A text without the values in quotes that stand beside a secret's name."""
        for value in by_name(made):
            if _secret(value, weak=False, quoted=True) and _odd_words(value):
                made = self._everywhere(made, "named-secret", value)
        return made

    def _everywhere(self, text: str, kind: str, value: str) -> str:
        """A text without a value that was found in it, wherever it stands."""
        if _MARK in value or value not in text:
            return text
        parts = text.split(value)
        made = parts[0]
        for part in parts[1:]:
            made += self._mark(kind) + part
        return made

    def json(self, value: Any, key: str = "") -> Any:
        """JSON data without its secrets, the same object where there is none; ``key`` is its name."""
        if isinstance(value, str):
            return self._named(value, key) if key else self.text(value)
        if isinstance(value, dict):
            names = [self.text(name) for name in value]
            ones = [self.json(one, name) for name, one in value.items()]
            # Compared by identity: what holds no secret comes back as the same object, however large it is.
            if all(a is b for a, b in zip(ones, value.values(), strict=True)) and names == list(value):
                return value
            return dict(zip(_distinct(names), ones, strict=True))
        if isinstance(value, list):
            items = [self.json(one, key) for one in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        return value

    def _named(self, value: str, key: str) -> str:
        """A value under a name; one that the name says is secret is taken out whole."""
        weak = _named_weakly(key[:80])
        if weak is None or not _secret(value, weak, quoted=True):
            return self.text(value)
        return self._mark("named-secret")

    def _without(self, text: str, shape: SecretKind) -> str:
        grouped = "secret" in shape.pattern.groupindex

        def new(match: re.Match[str]) -> str:
            if not grouped:
                return self._mark(shape.name)
            value = match["secret"]
            if _MARK in value or (shape.judged and _filler(value)):
                return match[0]
            start = match.start("secret") - match.start()
            return match[0][:start] + self._mark(shape.name) + match[0][start + len(value) :]

        return shape.pattern.sub(new, text)

    def _given(self, match: re.Match[str]) -> str:
        value = match["quoted"] or match["bare"]
        name = match["name"]
        strong = NAMES.fullmatch(name)
        weak = strong is None or strong["strong"] is None
        if _harmless(match.string, match.start("name")) or not _secret(
            value, weak, match["quoted"] is not None
        ):
            return match[0]
        start = match.start("quoted" if match["quoted"] is not None else "bare") - match.start()
        return match[0][:start] + self._mark("named-secret") + match[0][start + len(value) :]

    def _mark(self, name: str) -> str:
        self.counts[name] += 1
        return f"{_MARK}{name}]"


def _distinct(names: Sequence[str]) -> list[str]:
    """Names, those that came before with a number behind: two secrets of one kind are two keys."""
    made: dict[str, None] = {}
    count: Counter[str] = Counter()
    for name in names:
        one = name
        while one in made:
            count[name] += 1
            one = f"{name} {count[name] + 1}"
        made[one] = None
    return list(made)


def _holds(text: str, parts: Sequence[str]) -> bool:
    """Whether one of the parts stands in a text."""
    for part in parts:  # noqa: SIM110  (a generator takes three times as long, and this is most of an import)
        if part in text:
            return True
    return False


@lru_cache(maxsize=4096)
def _named_weakly(key: str) -> bool | None:
    """Whether a name only may be a secret's (True), is one's (False); None where it is no such name."""
    key = _CAMEL.sub("_", key)
    found = NAMES.fullmatch(key)
    if found is None or _harmless(key, found.start("weak")):
        return None
    return found["strong"] is None


def _harmless(text: str, at: int) -> bool:
    """Whether the name that begins at a place is part of one that names no secret, such as a page token."""
    return at > 0 and text[max(0, at - 14) : at].lower().endswith(_NOT_SECRET)


def _secret(value: str, weak: bool, quoted: bool) -> bool:
    """Whether a value that has a secret's name is one, and not a placeholder, a word or code."""
    if _MARK in value or _filler(value) or len(value) < (16 if weak else 4):
        return False
    digit = any(c.isdigit() for c in value)
    letter = any(c.isalpha() for c in value)
    odd = any(not c.isalnum() and c not in "_-.:/" for c in value)
    mixed = value != value.lower() and value != value.upper() and not value.istitle()
    if weak:
        many = sum(map(str.isdigit, value)) > 2
        return letter and digit and (many or mixed) and _bits(value) > (2.8 if many else 3.6)
    if quoted:
        return (
            digit
            or odd
            or (mixed and not _CODE.match(value))
            or (letter and len(value) >= 20 and _bits(value) > 3.5)
        )
    return (
        digit and letter and (odd or mixed or len(value) >= 12) and not value.startswith(("/", "./", "http"))
    )


def _odd_words(value: str) -> bool:
    """Whether a value is one word, or words that nobody writes in prose."""
    return " " not in value or (any(map(str.isdigit, value)) and any(c in "!#$%&*+=@^_~" for c in value))


def _filler(value: str) -> bool:
    """Whether a value only stands where a secret would."""
    return len(set(value)) < 3 or _PLACEHOLDER.search(value) is not None


def _bits(text: str) -> float:
    """Entropy of a text's characters, bits each."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


@final
class CleanPolicy:
    """What readers use of a policy to tokenise, given texts without secrets: no token ids spell one."""

    def __init__(self, policy: Policy, redactor: Redactor) -> None:
        # A redactor of its own: what is taken out here is counted where it is taken out of the texts.
        self._policy, self._redactor = policy, Redactor()
        self.card = policy.card
        self.codec = getattr(policy, "codec", None)
        redactor.decode = policy.decode

    def encode(self, text: str) -> IntArray:
        """Token ids of a text without its secrets."""
        return self._policy.encode(self._redactor.text(text))

    def decode(self, tokens: IntArray) -> str:
        """As the policy's."""
        return self._policy.decode(tokens)

    def clean(self, message: Message) -> Message:
        """A message without its secrets."""
        made: Message = self._redactor.json(message)
        return made

    def render(self, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]) -> Rendered:
        """Token ids of messages without their secrets."""
        before, after = ([self._redactor.json(one) for one in part] for part in (history, new))
        return self._policy.render(before, tokens, after)


def redacted(records: Iterator[Record], redactor: Redactor) -> Iterator[Record]:
    """Records without secrets, and a remark for each kind that a record held.

    Token ids spell a text: those of a text that held a secret are left out, with its log-probs and with the
    scores of its tokens.
    """
    bare: set[str] = set()
    renamed: dict[str, str] = {}
    for record in records:
        before = redactor.counts.copy()
        made: Record = record
        where = None
        if isinstance(record, NewNode):
            made = _draft(record, redactor)
            id_ = node_id(record.parent, record.keep, record.kind, str(record.key))
            where = f"node {id_[:12]}"
            if made.tokens is not record.tokens:
                bare.add(id_)
        elif isinstance(record, Producer):
            made = _producer(record, redactor, renamed)
            renamed[record.id] = made.id
        elif isinstance(record, Score):
            if record.node in bare and isinstance(record.value, np.ndarray):
                what = f"{record.name} of each token of a text with a secret"
                yield Remark("lost", what, f"node {record.node[:12]}")
                continue
            made = _score(record, redactor, renamed)
        yield made
        for kind, count in (redactor.counts - before).items():
            yield Remark("redacted", kind, where, count)
        if isinstance(record, NewNode) and id_ in bare:
            yield Remark("lost", "token ids of a text with a secret", where)


def _producer(producer: Producer, redactor: Redactor, renamed: Mapping[str, str]) -> Producer:
    """A producer without secrets; another one where its configuration held one."""
    config = redactor.json(producer.config)
    reads = tuple(renamed.get(one, one) for one in producer.reads)
    same = config is producer.config and reads == producer.reads
    return producer if same else replace(producer, config=config, reads=reads)


def _score(score: Score, redactor: Redactor, renamed: Mapping[str, str]) -> Score:
    reason = redactor.text(score.reason) if score.reason else score.reason
    giver = renamed.get(score.producer, score.producer)
    same = reason is score.reason and giver == score.producer
    return score if same else replace(score, reason=reason, producer=giver)


def _clean(tokens: IntArray, redactor: Redactor) -> bool:
    """Whether token ids are known to spell no secret."""
    if redactor.decode is None:
        return False
    text = redactor.decode(tokens)
    # One of its own: what is found while looking is not to be counted.
    return Redactor().text(text) is text


def _draft(new_node: NewNode, redactor: Redactor) -> NewNode:
    changed: dict[str, Any] = {}
    for name in ("text", "error"):
        value = getattr(new_node, name)
        if value is not None and (new := redactor.text(value)) is not value:
            changed[name] = new
    for name in ("message", "settings", "extra"):
        value = getattr(new_node, name)
        if value and (new := redactor.json(value)) is not value:
            changed[name] = new
    # Reasoning, calls and the tools that a prompt offers are not in the text, but their tokens are.
    shown = "message" in changed or any(
        changed.get("extra", new_node.extra).get(name) is not new_node.extra.get(name)
        for name in ("messages", "tools")
    )
    if "text" in changed:
        changed["offsets"] = None
    tokens = new_node.tokens if "text" in changed or shown else None
    if tokens is not None and not _clean(tokens, redactor):
        changed |= dict.fromkeys(_ARRAYS)
        settings = changed.get("settings", new_node.settings) or {}
        if "forced" in settings:
            changed["settings"] = {k: v for k, v in settings.items() if k != "forced"} or None
    return replace(new_node, **changed) if changed else new_node
