"""A small word-level tokenizer that loses nothing: unknown words are spelled in characters."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from refork.errors import BadInput
from refork.types import Message, token_array
from refork_methods.train.sft import Example

END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"
ROLES = ("system", "user", "assistant")
SPECIAL = (PAD, UNKNOWN, END, *(f"<|{role}|>" for role in ROLES))

#: Every turn is its role's token, its text, and the end-of-turn token; tool results are the user's.
TEMPLATE = (
    "{%- for m in messages -%}"
    "{%- set role = 'user' if m['role'] == 'tool' else m['role'] -%}"
    "{%- if role not in ['system', 'user', 'assistant'] -%}"
    "{{ raise_exception('unknown role ' + role) }}"
    "{%- endif -%}"
    "{{ '<|' + role + '|>' + m['content'] + '" + END + "' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)

_PIECES = r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\s]+|\s"


def make_tokenizer(words: Sequence[str], context: int) -> Any:
    """A fast tokenizer whose pieces are these words, with and without a leading space, and ASCII characters.

    Decoding is joining the pieces, so the text of any ASCII string comes back as it was.
    """
    characters = [c for c in string.printable if c.isprintable() or c == "\n"]
    pieces = list(SPECIAL) + characters
    pieces += [form for word in sorted(set(words)) for form in (word, f" {word}")]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    # Byte-pair encoding without merges: a whole piece if it is known, else its characters.
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN, ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        chat_template=TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )


def examples(tokenizer: Any, conversations: Sequence[Sequence[Message]]) -> list[Example]:
    """Conversations as training sequences, exactly as the chat template writes them.

    Learned are the assistant's own tokens: its text and the end of its turn, not its role token.

    Raises:
        BadInput: a text holds a character that the tokenizer does not know.
    """
    texts = [str(m["content"]) for c in conversations for m in c]
    encoded = iter(tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False))
    ids = {role: tokenizer.convert_tokens_to_ids(f"<|{role}|>") for role in ROLES}
    found = []
    for conversation in conversations:
        tokens: list[int] = []
        mask: list[bool] = []
        for message in conversation:
            inner = [*next(encoded).ids, tokenizer.eos_token_id]
            if tokenizer.unk_token_id in inner:
                raise BadInput(f"the tokenizer cannot write {message['content']!r}", where="training data")
            tokens += [ids[str(message["role"])], *inner]
            mask += [False] + [message["role"] == "assistant"] * len(inner)
        found.append(Example(token_array(tokens), np.array(mask)))
    return found
