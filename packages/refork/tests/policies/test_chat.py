"""The codec: lossless text, offsets, deltas that never render a sampled token again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

from refork.errors import BadInput, CannotDo
from refork.policies.chat import Codec, plain_message, tools_of

LINES = [
    "hello world, how are you?",
    "the agent goes north and takes the key",
    "中文 é 🙂 <think> answer",
] * 3
MARKS = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "<s>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n"
    "{% endif %}"
)
THINK = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 < ns.last %}{{ m.content.split('</think>')[-1].lstrip() }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name,"
    " 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}\n{% endfor %}"
)
PLAIN_ROLES = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

USER = {"role": "user", "content": "hello world"}
MORE = {"role": "user", "content": "how are you?"}


def said(text):
    return {"role": "assistant", "content": text}


def byte_level(template=None, bos=False):
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=MARKS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(LINES, trainer)
    if bos:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    inner.add_tokens([AddedToken("<think>", special=False), AddedToken("é!", special=False)])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", bos_token="<s>")
    made.chat_template = template
    return made


def metaspace():
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{i:02X}>": i + 3 for i in range(256)}
    for piece in ["▁", "h", "e", "l", "o", "▁h", "lo", "el", "▁hel", "▁hello", "w", "r", "d", "a", "."]:
        vocab[piece] = len(vocab)
    merges = [("▁", "h"), ("l", "o"), ("e", "l"), ("▁h", "el"), ("▁hel", "lo")]
    inner = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def words(template=None):
    names = ["[UNK]", "</s>", "go", "north", "south", "key", ":", "user", "assistant"]
    inner = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", eos_token="</s>")
    made.chat_template = template
    return made


class Letters(PreTrainedTokenizer):
    """A slow tokenizer: one token per letter."""

    def __init__(self, **options):
        self.table = {"</s>": 0} | {chr(c): c - 31 for c in range(32, 127)} | {"\n": 96}
        super().__init__(eos_token="</s>", **options)

    @property
    def vocab_size(self):
        return len(self.table)

    def get_vocab(self):
        return dict(self.table)

    def _tokenize(self, text, **_):
        return list(text)

    def _convert_token_to_id(self, token):
        return self.table.get(token, 0)

    def _convert_id_to_token(self, index):
        return next(k for k, v in self.table.items() if v == index)

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)


# -- text -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_byte_level_text_survives(text):
    codec = BYTES
    tokens = codec.encode(text)
    back, ends = codec.pieces(tokens)
    assert back == text == codec.decode(tokens)
    assert len(ends) == len(tokens)
    assert list(ends) == sorted(ends)
    assert not text or ends[-1] == len(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=20))
def test_any_tokens_have_offsets_and_equal_pieces_of_prefixes(ids):
    text, ends = BYTES.pieces(ids)
    assert text == BYTES.decode(ids)
    for k in range(len(ids)):
        # Up to the incomplete character, a prefix decodes to the prefix of the text.
        assert BYTES.decode(ids[: k + 1])[: ends[k]] == text[: ends[k]]


BYTES = Codec(byte_level())


def test_split_character_belongs_to_its_last_token():
    parts = BYTES.encode("🙂")
    assert len(parts) > 1
    ids = [*BYTES.encode("a"), *parts, *BYTES.encode("b")]
    text, ends = BYTES.pieces(ids)
    assert text == "a🙂b"
    assert list(ends) == [1] * len(parts) + [2, 3]


def test_broken_bytes_end_as_replacement_characters():
    half = BYTES.encode("🙂")[:-1]
    text, ends = BYTES.pieces(half)
    assert set(text) == {"\ufffd"}
    assert ends[-1] == len(text)


def test_empty_text_and_empty_tokens():
    for codec in (BYTES, Codec(metaspace()), Codec(words()), Codec(Letters())):
        assert codec.encode("").shape == (0,)
        text, ends = codec.pieces([])
        assert text == ""
        assert ends.shape == (0,)


def test_special_tokens_add_no_text_but_stay_in_raw():
    eos = BYTES.tokenizer.eos_token_id
    ids = [*BYTES.encode("hello"), eos]
    text, ends = BYTES.pieces(ids)
    assert text == "hello"
    assert ends[-1] == ends[-2] == 5
    assert BYTES.raw(ids) == "hello</s>"


def test_no_special_tokens_are_added():
    codec = Codec(byte_level(bos=True))
    assert codec.tokenizer("hello")["input_ids"][0] == codec.tokenizer.bos_token_id
    assert codec.tokenizer.bos_token_id not in codec.encode("hello")


def test_ids_outside_the_vocabulary_are_refused():
    for ids in ([-1], [10**6]):
        with pytest.raises(BadInput, match="outside the vocabulary"):
            BYTES.decode(ids)


@pytest.mark.parametrize("text", ["hello", " hello", "hello hello", "helo", "wörld", "\nhello", "a 🙂."])
def test_metaspace_has_no_dummy_space(text):
    codec = Codec(metaspace())
    assert codec.token_bytes is not None
    assert codec.decode(codec.encode(text)) == text


def test_metaspace_pieces_concatenate():
    codec = Codec(metaspace())
    ids = codec.tokenizer("hello hello", add_special_tokens=False)["input_ids"]
    assert codec.decode(ids) == " hello hello"
    assert codec.decode(ids[:1]) + codec.decode(ids[1:]) == codec.decode(ids)


def test_word_level_joined_by_spaces():
    codec = Codec(words())
    ids = codec.encode("go north")
    assert codec.token_bytes is None
    assert codec.pieces(ids)[0] == "go north"
    assert list(codec.pieces(ids)[1]) == [2, 8]


def test_word_level_lossless_with_fuse():
    names = ["[UNK]", "go", " ", "north", "\n"]
    inner = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    inner.decoder = decoders.Fuse()
    codec = Codec(PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]"))
    assert codec.token_bytes is not None
    assert codec.decode(codec.encode("go north go")) == "go north go"


def test_generic_decoder_handles_split_characters():
    fast, slow = Codec(byte_level()), Codec(byte_level())
    slow.__dict__["_bytes"] = None
    ids = fast.encode("a🙂é b中文") + 0
    assert slow.pieces(ids)[0] == fast.pieces(ids)[0]
    assert list(slow.pieces(ids)[1]) == list(fast.pieces(ids)[1])


def test_slow_tokenizer():
    codec = Codec(Letters(chat_template=PLAIN_ROLES))
    assert codec.decode(codec.encode("Hi there\n")) == "Hi there\n"
    first = codec.render([], [], [USER])
    assert codec.raw(first.tokens) == "user: hello world\nassistant: "
    assert len(codec.digest) == 64


# -- identity ---------------------------------------------------------------------------------


def test_digest_names_the_tokenizer_and_the_template():
    one, again, other = Codec(byte_level(CHATML)), Codec(byte_level(CHATML)), Codec(byte_level(LLAMA))
    before = one.digest
    one.tokenizer("hello", truncation=True, max_length=2)
    assert Codec(one.tokenizer).digest == before == again.digest
    assert other.digest != before
    assert Codec(metaspace()).digest != before


def test_eos_ids_hold_the_templates_end_of_turn():
    table = byte_level().get_vocab()
    assert Codec(byte_level()).eos_ids == (table["</s>"],)
    assert set(Codec(byte_level(CHATML)).eos_ids) == {table["</s>"], table["<|im_end|>"]}
    assert set(Codec(byte_level(LLAMA)).eos_ids) == {table["</s>"], table["<|eot_id|>"]}
    assert set(Codec(byte_level(PLAIN_ROLES)).eos_ids) == {table["</s>"]}


def test_vocabulary_counts_added_tokens():
    assert BYTES.vocabulary == len(BYTES.tokenizer)


# -- deltas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [CHATML, LLAMA, THINK, TOOLS, PLAIN_ROLES])
def test_deltas_add_up_to_the_full_rendering(template):
    codec = Codec(byte_level(template))
    end = codec.raw([i for i in codec.eos_ids if codec.raw([i]) in template][:1])
    first = codec.render([], [], [USER])
    assert not first.rewrites
    for stop in ("", end):
        context = [*first.tokens, *codec.encode("I go north" + stop)]
        history = [USER, said("I go north")]
        delta = codec.render(history, context, [MORE])
        assert not delta.rewrites
        whole = codec.template_text([*history, MORE], generate=True)
        assert codec.raw([*context, *delta.tokens]) == whole
        assert delta.text == codec.decode(delta.tokens)


def test_bos_only_at_the_start():
    codec = Codec(byte_level(LLAMA))
    bos = codec.tokenizer.bos_token_id
    first = codec.render([], [], [USER])
    assert list(first.tokens).count(bos) == 1
    assert first.tokens[0] == bos
    context = [*first.tokens, *codec.encode("yes")]
    assert bos not in codec.render([USER, said("yes")], context, [MORE]).tokens
    # A raw context that no message describes.
    assert bos not in codec.render([], codec.encode("once upon"), [USER]).tokens


def test_a_trimmed_turn_is_no_rewrite():
    codec = Codec(byte_level(LLAMA))
    first = codec.render([], [], [USER])
    context = [*first.tokens, *codec.encode(" yes \n")]
    delta = codec.render([USER, said(" yes \n")], context, [MORE])
    assert not delta.rewrites
    assert codec.raw(delta.tokens).startswith("<|eot_id|><|start_header_id|>user")


def test_another_end_of_sequence_is_closed_and_no_rewrite():
    codec = Codec(byte_level(CHATML))
    first = codec.render([], [], [USER])
    context = [*first.tokens, *codec.encode("yes</s>")]
    delta = codec.render([USER, said("yes")], context, [MORE])
    assert not delta.rewrites
    assert codec.raw(delta.tokens).startswith("<|im_end|>\n<|im_start|>user")
    # And it stays none two turns on.
    context = [*context, *delta.tokens, *codec.encode("no<|im_end|>")]
    again = codec.render([USER, said("yes"), MORE, said("no")], context, [USER])
    assert not again.rewrites
    assert codec.raw(again.tokens).startswith("\n<|im_start|>user")


def test_a_newline_that_ends_the_turn_is_not_doubled():
    codec = Codec(byte_level(PLAIN_ROLES))
    first = codec.render([], [], [USER])
    context = [*first.tokens, *codec.encode("yes\n")]
    delta = codec.render([USER, said("yes")], context, [MORE])
    assert codec.raw([*context, *delta.tokens]) == (
        "user: hello world\nassistant: yes\nuser: how are you?\nassistant: "
    )


def test_dropped_thinking_is_a_rewrite_with_the_whole_context():
    codec = Codec(byte_level(THINK))
    thought = "<think>hm, well</think>\n\nyes"
    context = [*codec.render([], [], [USER]).tokens, *codec.encode(thought + "<|im_end|>")]
    tool = {"role": "tool", "content": "ok"}
    kept = codec.render([USER, said(thought)], context, [tool])
    assert not kept.rewrites
    dropped = codec.render([USER, said(thought)], context, [MORE])
    assert dropped.rewrites
    assert codec.raw(dropped.tokens) == codec.template_text([USER, said(thought), MORE], generate=True)
    assert "hm" not in codec.raw(dropped.tokens)


def test_an_empty_delta_opens_the_turn():
    codec = Codec(byte_level(CHATML))
    context = codec.encode("<|im_start|>user\nhello world<|im_end|>\n")
    delta = codec.render([USER], context, [])
    assert codec.raw(delta.tokens) == "<|im_start|>assistant\n"


def test_unknown_words_are_no_rewrite():
    codec = Codec(words(PLAIN_ROLES))
    asked = {"role": "user", "content": "go zzz north"}
    context = [*codec.render([], [], [asked]).tokens, *codec.encode("key")]
    delta = codec.render([asked, said("key")], context, [{"role": "user", "content": "south"}])
    assert not delta.rewrites
    assert codec.raw(delta.tokens) == "user : south assistant :"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text("ab é\n🙂", min_size=0, max_size=8), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([CHATML, LLAMA, TOOLS]),
)
def test_random_talks_never_render_a_sampled_token_again(texts, closed, template):
    codec = TALKERS[template]
    end = {CHATML: "<|im_end|>", LLAMA: "<|eot_id|>", TOOLS: "<|im_end|>"}[template]
    history, context = [], []
    for text, close in zip(texts, closed, strict=False):
        ask = {"role": "user", "content": "q" + text}
        delta = codec.render(history, context, [ask])
        assert not delta.rewrites
        context = [*context, *delta.tokens, *codec.encode(text + (end if close else ""))]
        history = [*history, ask, said(text)]
    raw = codec.raw(context)
    assert raw.count("<s>") == (1 if template == LLAMA else 0)
    assert raw.count(end) == 2 * len(texts) - 1 + closed[: len(texts)][-1]


TALKERS = {template: Codec(byte_level(template)) for template in (CHATML, LLAMA, TOOLS)}


# -- tools ------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "go", "arguments": '{"to": "north"}'}}


def test_tools_and_tool_calls():
    codec = Codec(byte_level(TOOLS))
    asked = USER | {"tools": [TOOL]}
    first = codec.render([], [], [asked])
    assert '"name": "go"' in codec.raw(first.tokens)
    sampled = '<tool_call>{"name":"go", "arguments":{"to": "north"}}</tool_call><|im_end|>'
    history = [asked, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    delta = codec.render(
        history, [*first.tokens, *codec.encode(sampled)], [{"role": "tool", "content": "done"}]
    )
    assert not delta.rewrites
    assert codec.raw(delta.tokens) == "\n<|im_start|>tool\ndone<|im_end|>\n<|im_start|>assistant\n"


def test_tools_where_the_template_has_none_are_refused():
    codec = Codec(byte_level(CHATML))
    with pytest.raises(CannotDo, match="shows no tools"):
        codec.render([], [], [USER | {"tools": [TOOL]}])
    with pytest.raises(CannotDo, match="no tool calls"):
        codec.render([], [], [USER, {"role": "assistant", "tool_calls": [CALL]}])


def test_plain_message_reads_arguments():
    message = plain_message({"role": "assistant", "content": None, "tool_calls": [CALL], "tools": [TOOL]})
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"]["arguments"] == {"to": "north"}
    assert "tools" not in message
    broken = {"function": {"name": "go", "arguments": "{nope"}}
    assert (
        plain_message({"role": "a", "tool_calls": [broken]})["tool_calls"][0]["function"]["arguments"]
        == "{nope"
    )
    assert tools_of([USER, USER | {"tools": [TOOL]}]) == [TOOL]


def test_a_template_that_refuses_is_bad_input():
    codec = Codec(byte_level(STRICT))
    with pytest.raises(BadInput, match="roles must alternate"):
        codec.render([], [], [USER, MORE])


def test_a_template_that_dates_its_contexts_renders_alike_on_any_day():
    dated = "{% if strftime_now is defined %}{% set d = strftime_now('%d %b %Y') %}{% endif %}{{ d }}\n"
    codec = Codec(byte_level(dated + PLAIN_ROLES))
    assert codec.template_text([USER], generate=False).startswith("26 Jul 2024\n")


def test_several_templates():
    codec = Codec(byte_level({"default": CHATML, "tool_use": TOOLS}))
    assert "<|im_start|>user" in codec.template_text([USER], generate=False)
    assert '"go"' in codec.template_text([USER | {"tools": [TOOL]}], generate=False)
    with pytest.raises(CannotDo, match="none is called 'default'"):
        Codec(byte_level({"rag": CHATML})).template_text([USER], generate=False)


# -- without a template -----------------------------------------------------------------------


def test_without_a_template():
    codec = Codec(byte_level())
    first = codec.render([], [], [{"role": "system", "content": "the key"}, USER])
    assert first.text == "the key\nhello world\n"
    context = [*first.tokens, *codec.encode("go north")]
    delta = codec.render([USER, said("go north")], context, [MORE])
    assert delta.text == "how are you?\n"
    assert not delta.rewrites
    whole = codec.render([], [], [USER, said("go north"), MORE])
    assert whole.text == "hello world\ngo northhow are you?\n"
    with pytest.raises(CannotDo):
        codec.template_text([USER], generate=True)


def test_without_a_template_the_tokenizers_own_bos_comes_first():
    codec = Codec(byte_level(bos=True))
    bos = codec.tokenizer.bos_token_id
    first = codec.render([], [], [USER])
    assert first.tokens[0] == bos
    assert bos not in codec.render([USER], first.tokens, [MORE]).tokens
