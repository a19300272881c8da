"""Text, tokens and chat messages of one tokenizer, without loss.

A :class:`Codec` wraps any Hugging Face tokenizer. What it adds: decoding in mid-stream (no dummy leading
space, no clean-up), the character offsets of tokens, and rendering as a *delta*: the tokens that
new messages add to a context that is already there, so that sampled tokens are never rendered again.

With a chat template, the delta is what the template writes after the context's text. Compared are first
the exact texts, then the texts without white space and special tokens, since templates trim and policies stop
early. Where both differ the template has changed what came before (it drops old thinking, say), and the
whole new context is given instead, marked ``rewrites``.

Without a template a message is its content, and every message but the policy's own ends with a newline.

Tools are the ``tools`` key of any message, as a list of OpenAI function schemas. A template that asks for
today's date always gets the same one (26 July 2024), so that a record renders alike on any day.
"""

from __future__ import annotations

import codecs
import datetime
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import jinja2

from refork.errors import BadInput, CannotDo
from refork.policies.base import Rendered
from refork.types import IntArray, Json, Message, token_array

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_INCOMPLETE = "\ufffd"
_LONGEST_CHARACTER = 4  # bytes of UTF-8, hence tokens that one character can be split over
_DATE = datetime.date(2024, 7, 26)
_DATE_CALL = re.compile(r"strftime_now\(\s*(?P<quote>['\"])(?P<form>.*?)(?P=quote)\s*\)")
_ANCHORS = ("\n", ".", "a")
_MARK = "refork"  # a text that no template writes by itself


def tools_of(messages: Sequence[Message]) -> list[Json]:
    """The function schemas that messages carry under ``tools``, in order."""
    return [tool for message in messages for tool in message.get("tools") or ()]


def plain_message(message: Message) -> Message:
    """The message as templates expect it: text content, no ``tools`` key, tool arguments as objects."""
    plain = {key: value for key, value in message.items() if key != "tools"}
    plain["content"] = plain.get("content") or ""
    if plain.get("tool_calls"):
        plain["tool_calls"] = [_plain_call(call) for call in plain["tool_calls"]]
    return plain


def _plain_call(call: Json) -> Json:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            function["arguments"] = parsed
    return {**call, "function": function}


@final
class Codec:
    """Encode, decode and render with one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        template = getattr(tokenizer, "chat_template", None)
        self._template: str | dict[str, str] | None = template or None
        self._frames: dict[str, tuple[str, str, str] | None] = {}
        added = getattr(tokenizer, "added_tokens_decoder", {})
        # all_special_ids leaves out added tokens that are marked as special one by one.
        self._special = {int(i) for i in tokenizer.all_special_ids} | {
            int(i) for i, token in added.items() if getattr(token, "special", False)
        }

    @property
    def tokenizer(self) -> Any:
        """The wrapped tokenizer."""
        return self._tokenizer

    @cached_property
    def vocabulary(self) -> int:
        """One more than the largest token id."""
        return 1 + max(self._tokenizer.get_vocab().values(), default=-1)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that add no text to a transcript."""
        return frozenset(self._special)

    @property
    def has_template(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return self._template is not None

    @cached_property
    def digest(self) -> str:
        """Sha256 (hex) of everything that could give a text other tokens, the chat template included."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is not None:
            body = json.loads(backend.to_str())
            # Both are set by earlier calls, not by the tokenizer's author.
            body.pop("truncation", None)
            body.pop("padding", None)
        else:
            vocabulary = sorted(self._tokenizer.get_vocab().items())
            body = {"class": type(self._tokenizer).__name__, "vocabulary": vocabulary}
        whole = {"tokenizer": body, "template": self._template, "special": sorted(self._special)}
        return hashlib.sha256(json.dumps(whole, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a turn: the tokenizer's end of sequence and the template's end of turn."""
        eos = self._tokenizer.eos_token_id
        found = set(eos) if isinstance(eos, (list, tuple)) else {eos} - {None}
        if self.has_template:
            found |= self._template_end() & self._special
        return tuple(sorted(int(i) for i in found))

    # -- plain text ---------------------------------------------------------------------------

    def encode(self, text: str) -> IntArray:
        """Token ids of text inside a stream: no special tokens added, no dummy leading space.

        Text that spells a special token becomes that token, as everywhere in Hugging Face.
        """
        return token_array(self._ids_after(text))

    def decode(self, tokens: Any) -> str:
        """Text of token ids inside a stream, special tokens left out."""
        return self.pieces(tokens)[0]

    def pieces(self, tokens: Any) -> tuple[str, IntArray]:
        """Text of token ids without special tokens, and the end of each token in it (characters).

        A character whose bytes are split over tokens belongs to the token that completes it.
        """
        text, ends = self._split(self._checked(tokens), special=False)
        return text, token_array(ends)

    def raw(self, tokens: Any) -> str:
        """Text of token ids with special tokens spelled out."""
        return self._split(self._checked(tokens), special=True)[0]

    def _checked(self, tokens: Any) -> list[int]:
        ids = [int(i) for i in tokens]
        for i in ids:
            if not 0 <= i < self.vocabulary:
                raise BadInput(f"token id {i} is outside the vocabulary of {self.vocabulary}")
        return ids

    def _ids(self, text: str) -> list[int]:
        if not text:
            return []
        found = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [int(i) for i in found]

    def _ids_after(self, text: str) -> list[int]:
        if not text or not self._adds_space:
            return self._ids(text)
        # Some tokenizers put a space before the first word of a text; behind an anchor they do not.
        for anchor in _ANCHORS:
            head, whole = self._ids(anchor), self._ids(anchor + text)
            if whole[: len(head)] == head and self._split(whole[len(head) :], special=True)[0] == text:
                return whole[len(head) :]
        return self._ids(text)

    @cached_property
    def _adds_space(self) -> bool:
        return self._split(self._ids("a"), special=True)[0] == " a"

    def _split(self, ids: list[int], *, special: bool) -> tuple[str, list[int]]:
        table = self.token_bytes
        if table is None:
            return self._split_by_decoding(ids, special=special)
        parts = [b"" if not special and i in self._special else table[i] for i in ids]
        joined = b"".join(parts)
        ends, end = [], 0
        if joined.isascii():
            for part in parts:
                end += len(part)
                ends.append(end)
            return joined.decode("ascii"), ends
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        texts = []
        for row, part in enumerate(parts):
            # Incomplete bytes wait for the rest of their character; at the very end they become U+FFFD.
            texts.append(reader.decode(part, final=row == len(parts) - 1))
            end += len(texts[-1])
            ends.append(end)
        return "".join(texts), ends

    def _split_by_decoding(self, ids: list[int], *, special: bool) -> tuple[str, list[int]]:
        """Decode each token after the one before it: for decoders that look at their neighbours."""
        text, ends, context, read = "", [], 0, 0
        for row in range(len(ids)):
            before = self._decoded(ids[context:read], special=special)
            after = self._decoded(ids[context : row + 1], special=special)
            waiting = after.endswith(_INCOMPLETE) and row + 1 < len(ids)
            if not waiting or row - read >= _LONGEST_CHARACTER - 1:
                text += after[len(before) :]
                # Special tokens decode to nothing and are no context for the spacing of the next.
                context = read if after != before else context
                read = row + 1
            ends.append(len(text))
        return text, ends

    def _decoded(self, ids: list[int], *, special: bool) -> str:
        if not ids:
            return ""
        return str(
            self._tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
        )

    @cached_property
    def token_bytes(self) -> list[bytes] | None:
        """The bytes of every token, where the decoder merely joins them; None where it does not."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        steps = _join_steps(json.loads(backend.to_str()).get("decoder")) if backend is not None else None
        if steps is None:
            return None
        names = self._tokenizer.convert_ids_to_tokens(list(range(self.vocabulary)))
        table = [b"" if name is None else _token_bytes(name, steps) for name in names]
        return table if self._agrees(table) else None

    def _agrees(self, table: list[bytes]) -> bool:
        """Whether joining bytes gives what the tokenizer's own decoder gives, on a spread of its tokens."""
        usual = [i for i in range(len(table)) if i not in self._special and table[i]]
        sample = usual[:: max(1, len(usual) // 256)] + usual[-32:]
        for start in range(0, len(sample), 8):
            ids = sample[start : start + 8]
            try:
                text = b"".join(table[i] for i in ids).decode("utf-8")
            # The sample cuts a character in two, which says nothing about the decoder.
            except UnicodeDecodeError:
                continue
            # A decoder may drop the space before the first word of what it is given.
            if self._decoded(ids, special=True).lstrip(" ") != text.lstrip(" "):
                return False
        return True

    # -- chat ---------------------------------------------------------------------------------

    def template_text(self, messages: Sequence[Message], *, generate: bool) -> str:
        """The chat template's text of messages; ``generate`` opens the policy's turn.

        Raises:
            CannotDo: there is no template, or it shows no tools.
            BadInput: the template refuses the messages.
        """
        if self._template is None:
            raise CannotDo("this tokenizer has no chat template")
        tools = tools_of(messages)
        source = self._source(tools=bool(tools))
        if tools and "tools" not in source:
            raise CannotDo("this tokenizer's chat template shows no tools")
        if "tool_calls" not in source and any(m.get("tool_calls") for m in messages):
            raise CannotDo("this tokenizer's chat template shows no tool calls")
        try:
            text = self._tokenizer.apply_chat_template(
                [plain_message(m) for m in messages],
                tools=tools or None,
                add_generation_prompt=generate,
                tokenize=False,
                chat_template=_undated(source),
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            raise BadInput(
                f"the chat template refuses these messages: {error}",
                where="roles " + ", ".join(str(m.get("role")) for m in messages),
            ) from error
        return str(text)

    def answer_frame(self, ask: Message) -> tuple[str, str, str] | None:
        """How the template opens an answer to ``ask``, what it puts before every answer, and how it ends one.

        None where an answer does not stand where the opening of the policy's turn ends.

        Raises: as :meth:`template_text`.
        """
        key = json.dumps(ask, sort_keys=True)
        if key not in self._frames:
            opening = self.template_text([ask], generate=True)
            plain = self.template_text([ask, {"role": "assistant", "content": _MARK}], generate=False)
            lead, marked, ending = plain.removeprefix(opening).rpartition(_MARK)
            fits = marked and plain.startswith(opening)
            self._frames[key] = (opening, lead, ending) if fits else None
        return self._frames[key]

    def _source(self, *, tools: bool) -> str:
        if not isinstance(self._template, dict):
            return self._template or ""
        name = "tool_use" if tools and "tool_use" in self._template else "default"
        if name not in self._template:
            raise CannotDo(f"this tokenizer has several chat templates and none is called {name!r}")
        return self._template[name]

    def render(self, history: Sequence[Message], tokens: Any, new: Sequence[Message]) -> Rendered:
        """Tokens that ``new`` messages add after the context ``tokens``, which holds ``history``.

        The result ends where the policy is to begin speaking. It closes the policy's last turn as far as
        that is not closed, and begins with a beginning-of-sequence token only if the context is empty.

        Raises:
            CannotDo: tools or tool calls are given and the template shows none.
            BadInput: the template refuses the messages.
        """
        if self._template is None:
            return self._render_plain(history, tokens, new)
        context = self._checked(tokens)
        # The context is no conversation (a text that was forked), so there is nothing to compare with.
        if context and not history:
            whole = self.template_text(new, generate=True)
            return self._rendered(self._ids_after(whole.removeprefix(self._tokenizer.bos_token or "")))
        whole = self.template_text([*history, *new], generate=True)
        if not context:
            return self._rendered(self._ids(whole))
        held = self._split(context, special=True)[0]
        cut = self._continues(held, whole)
        if cut is None:
            # What the tokenizer itself cannot keep (case, unknown words) is no change by the template.
            whole_again = self._split(self._ids(whole), special=True)[0]
            again = self._continues(held, whole_again)
            if again is None:
                return self._rendered(self._ids(whole), rewrites=True)
            whole, cut = whole_again, again
        return self._rendered(self._ids_after(whole[cut:]))

    def _rendered(self, ids: list[int], *, rewrites: bool = False) -> Rendered:
        return Rendered(token_array(ids), self._split(ids, special=False)[0], rewrites)

    def _render_plain(self, history: Sequence[Message], tokens: Any, new: Sequence[Message]) -> Rendered:
        empty = len(tokens) == 0
        text = "".join(_plain_text(m) for m in ([*history, *new] if empty else new))
        if not empty:
            return self._rendered(self._ids_after(text))
        return self._rendered(self.opening + self._ids(text))

    @cached_property
    def opening(self) -> list[int]:
        """The beginning-of-sequence token, where the tokenizer puts one before plain text."""
        bos = self._tokenizer.bos_token_id
        added = [int(i) for i in self._tokenizer("a", verbose=False)["input_ids"]]
        return [bos] if bos is not None and added[:1] == [bos] and self._ids("a")[:1] != [bos] else []

    def _continues(self, held: str, whole: str) -> int | None:
        """Where in ``whole`` the text after ``held`` begins; None if ``whole`` does not continue it."""
        if whole.startswith(held):
            return len(held)
        seen, held_ends = self._visible(held)
        shown, ends = self._visible(whole)
        if not shown.startswith(seen):
            return None
        tail = held[held_ends[-1] :] if seen else held
        return self._past_turn_end(tail, whole, ends[len(seen) - 1] if seen else 0)

    def _past_turn_end(self, tail: str, whole: str, cut: int) -> int:
        """``cut`` moved over the special tokens and white space that the context's tail already holds."""
        # What of the turn's end stands in the context already must not be rendered again.
        have = [found for found in self._unseen.finditer(tail) if not found.group().isspace()]
        after = 0
        for found in have:
            ahead = self._unseen.match(whole, cut)
            space = ahead if ahead and ahead.group().isspace() else None
            if space:
                ahead = self._unseen.match(whole, space.end())
            if ahead and ahead.lastgroup != "seen" and ahead.group() == found.group():
                cut, after = ahead.end(), found.end()
        rest = tail[after:]
        ahead = self._unseen.match(whole, cut)
        blank = ahead.group() if ahead and ahead.group().isspace() else ""
        there = (k for k in range(len(blank) + 1) if rest.endswith(blank[:k]) or rest.startswith(blank[:k]))
        return cut + max(there)

    def _visible(self, text: str) -> tuple[str, list[int]]:
        """Text without white space and special tokens, and where each character of it ended."""
        kept, ends = [], []
        for found in self._unseen.finditer(text):
            if found.lastgroup == "seen":
                kept.append(found.group())
                ends.append(found.end())
        return "".join(kept), ends

    @cached_property
    def _unseen(self) -> re.Pattern[str]:
        names = self._tokenizer.convert_ids_to_tokens(sorted(self._special))
        special = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if name)
        return re.compile((f"(?:{special})|" if special else "") + r"\s+|(?P<seen>\S)")

    def _template_end(self) -> set[int]:
        """The first token that the template writes after the policy's own words."""
        try:
            text = self.template_text(
                [{"role": "user", "content": "a"}, {"role": "assistant", "content": _MARK}], generate=False
            )
        except (BadInput, CannotDo):
            return set()
        return set(self._ids(text.rpartition(_MARK)[2].lstrip())[:1])


@functools.lru_cache(maxsize=64)
def _undated(source: str) -> str:
    """The template with today's date made a fixed one: a context must render tomorrow as it does today."""
    return _DATE_CALL.sub(lambda call: repr(_DATE.strftime(call["form"])), source)


def _plain_text(message: Message) -> str:
    content = str(message.get("content") or "")
    return content if message.get("role") == "assistant" else content + "\n"


def _join_steps(decoder: Json | None) -> list[Json] | None:
    """The decoder's steps if each token's bytes depend on that token alone, else None."""
    if decoder is None:
        return None
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    joins = False
    for step in steps:
        kind = step["type"]
        if kind == "Replace" and "String" not in step["pattern"]:
            return None
        if kind == "Strip" and (not joins or step["stop"] or step["content"] != " "):
            return None
        if kind not in ("Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "ByteLevel"):
            return None
        joins = joins or kind in ("Fuse", "Metaspace", "ByteLevel")
    return steps if joins else None


def _token_bytes(name: str, steps: list[Json]) -> bytes:
    for step in steps:
        kind = step["type"]
        if kind == "Replace":
            name = name.replace(step["pattern"]["String"], step["content"])
        elif kind == "Metaspace":
            name = name.replace(step["replacement"], " ")
        elif kind == "ByteFallback" and (found := _BYTE_TOKEN.fullmatch(name)):
            return bytes([int(found.group(1), 16)])
        elif kind == "ByteLevel":
            known = _byte_letters()
            # Added tokens are spelled in plain letters, among them a space, which stands for no byte.
            return bytes(known[c] for c in name) if all(c in known for c in name) else name.encode()
    return name.encode()


def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level tokenizers write bytes. Source: GPT-2's public encoder."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + row): b for row, b in enumerate(hidden)}
