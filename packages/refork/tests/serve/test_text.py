"""Text that goes out while tokens come: whole characters, no part of a stop string, nothing lost."""

import functools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

from refork.policies.chat import Codec
from refork.serve.text import Speech, WindowReader, reader_of
from support.models import make_tokenizer


@functools.cache
def byte_level():
    return Codec(make_tokenizer())


@functools.cache
def word_piece():
    """A decoder that looks at neighbours: pieces that begin with ## stick to the word before."""
    words = ["[UNK]", "<end>", "un", "##til", "##led", "the", "end", ".", "##ing", "pro"]
    inner = Tokenizer(tokenizer_models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(["<end>"])
    return Codec(PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>"))


@functools.cache
def byte_fallback():
    """A decoder that reads a run of byte tokens as a whole: one that is cut short has no character at all."""
    words = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"ab"]
    inner = Tokenizer(
        tokenizer_models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    inner.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    return Codec(PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="<unk>"))


def window(codec):
    """The reader for decoders that look at neighbours, on one that does not."""
    return WindowReader(codec.pieces, codec.special_ids)


def speech(codec, stops=(), *, reader=reader_of, **more):
    return Speech(reader(codec), stops, **more)


def sent(codec, tokens, stops=(), sizes=(1,), **more):
    """All parts of a stream that comes in pieces of these sizes, in turn."""
    said, parts, place, turn = speech(codec, stops, **more), [], 0, 0
    while place < len(tokens):
        size = sizes[turn % len(sizes)]
        parts.append(said.put(tokens[place : place + size], last=place + size >= len(tokens)))
        place, turn = place + size, turn + 1
    return said, parts


@pytest.mark.parametrize(
    ("make", "reader"), [(byte_level, reader_of), (byte_level, window), (word_piece, reader_of)]
)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_parts_joined_are_the_text_however_the_tokens_come(make, reader, data):
    codec = make()
    tokens = data.draw(st.lists(st.integers(0, codec.vocabulary - 1), min_size=1, max_size=60))
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    said, parts = sent(codec, tokens, sizes=sizes, reader=reader)
    text, ends = codec.pieces(tokens)
    assert "".join(parts) == text
    assert said.ends[-1] == len(text)
    if reader is window:
        late = [end for end, other in zip(said.ends, ends, strict=True) if end != other]
        assert len(late) <= text.count("\ufffd")  # a broken byte is known to be one a token later
    elif make is byte_level:
        assert np.array_equal(said.ends, ends)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=30), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_no_half_character_is_ever_sent(text, sizes):
    tokens = byte_level().encode(text).tolist()
    said, parts = sent(byte_level(), tokens, sizes=sizes)
    assert "".join(parts) == text
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text
    assert np.array_equal(said.ends, byte_level().pieces(tokens)[1])


@settings(max_examples=60, deadline=None)
@given(text=st.text("ab€é😀", max_size=60))
@example("a€b")
@example("😀" * 40)
def test_characters_that_are_bytes_come_out_whole(text):
    tokens = [
        token
        for char in text
        for token in ([258 + "ab".index(char)] if char in "ab" else [2 + byte for byte in char.encode()])
    ]
    reader = window(byte_fallback())
    parts = [reader.put(token) for token in tokens] + [reader.end()]
    assert "".join(parts) == byte_fallback().pieces(tokens)[0] == text
    assert all("\ufffd" not in part for part in parts)


@settings(max_examples=150, deadline=None)
@given(
    text=st.text("abc é😀", max_size=24),
    stops=st.lists(st.text("abcé😀", min_size=1, max_size=4), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    keep=st.booleans(),
)
def test_a_stop_string_ends_the_text_before_it_and_no_part_of_it_goes_out(text, stops, sizes, keep):
    tokens = byte_level().encode(text).tolist()
    said, parts = sent(byte_level(), tokens, stops, sizes, keep_stop=keep)
    joined = "".join(parts)
    # What a reader sees is what the first stop string to be complete leaves of the text.
    ends = [(text.find(s) + len(s), -len(s), s) for s in stops if s in text]
    if not ends:
        assert (joined, said.stopped) == (text, None)
        return
    assert said.stopped in stops
    at = len(joined) - len(said.stopped) * keep
    assert text[at:].startswith(said.stopped)
    assert text.startswith(joined)
    assert not any(stop in joined[: at + len(said.stopped) - 1] for stop in stops if not keep)


def test_what_may_begin_a_stop_string_is_held_until_it_does_not():
    said = speech(byte_level(), ["end."])
    word = functools.partial(byte_level().encode)
    assert [said.put(word(c).tolist()) for c in "an en"] == ["a", "n", " ", "", ""]
    assert said.put(word("d ").tolist()) == "end "
    assert said.put(word("e").tolist(), last=True) == "e"


def test_a_long_stream_costs_each_token_the_same():
    codec, seen = byte_level(), []

    def pieces(tokens):
        seen.append(len(tokens))
        return codec.pieces(tokens)

    said = Speech(WindowReader(pieces))
    for _ in range(500):
        said.put(codec.encode("é").tolist())
    assert max(seen) <= 16
    assert said.ends[-1] == 500
