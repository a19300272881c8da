import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.policies.chat import Codec
from refork_testbed.models.tokenizer import END, examples, make_tokenizer

TOKENIZER = make_tokenizer(["go", "north", "room", "12"], 64)
TALK = [
    {"role": "user", "content": "go north\nroom 12 ; ok"},
    {"role": "assistant", "content": "go"},
    {"role": "user", "content": "room 12"},
    {"role": "assistant", "content": "north"},
]


def ids(text):
    return TOKENIZER.backend_tokenizer.encode(text, add_special_tokens=False).ids


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_every_ascii_text_comes_back_as_it_was(text):
    assume("<|" not in text)  # the marks of turns are tokens of their own and add no text
    assert Codec(TOKENIZER).decode(ids(text)) == text


def test_known_words_are_one_token_and_others_are_spelled():
    tokens = TOKENIZER.convert_ids_to_tokens(ids("go north, room 12 rooms 34"))
    assert tokens == ["go", " north", ",", " room", " 12", *" rooms", *" 34"]


def test_training_sequences_are_what_the_template_writes():
    (example,) = examples(TOKENIZER, [TALK])
    written = TOKENIZER.apply_chat_template(TALK, tokenize=False)
    assert example.tokens.tolist() == ids(written)
    learned = TOKENIZER.convert_ids_to_tokens(example.tokens[example.mask].tolist())
    assert learned == ["go", END, "north", END]


def test_rendering_as_a_delta_gives_the_same_tokens():
    codec = Codec(TOKENIZER)
    (example,) = examples(TOKENIZER, [TALK])
    context = codec.render([], [], TALK[:1]).tokens
    said = np.array([*ids("go"), TOKENIZER.eos_token_id], dtype=np.int32)
    context = np.concatenate([context, said])
    delta = codec.render(TALK[:2], context, TALK[2:3])
    assert not delta.rewrites
    context = np.concatenate([context, delta.tokens])
    assert context.tolist() == example.tokens[: len(context)].tolist()
    assert codec.eos_ids == (TOKENIZER.eos_token_id,)


def test_an_unknown_character_is_refused_in_training_data():
    with pytest.raises(BadInput, match="cannot write"):
        examples(TOKENIZER, [[{"role": "user", "content": "é"}]])


def test_an_unknown_role_is_refused_by_the_template():
    with pytest.raises(BadInput, match="refuses"):
        Codec(TOKENIZER).template_text([{"role": "judge", "content": "x"}], generate=False)
