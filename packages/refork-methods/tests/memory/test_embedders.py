from __future__ import annotations

import numpy as np
import pytest

from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.retrieve import Document, Retriever, SentenceEmbedder
from refork_methods.memory.roles.lesson import Lesson

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] pages start at zero read every page names are similar amounts in cents"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a SentenceTransformer of a random BERT of one layer."""
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel, BertTokenizerFast

    home = tmp_path_factory.mktemp("tiny")
    vocabulary = list(dict.fromkeys(WORDS.split()))
    (home / "vocab.txt").write_text("\n".join(vocabulary))
    bert = str(home / "bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(bert)
    BertTokenizerFast(str(home / "vocab.txt")).save_pretrained(bert)
    words = modules.Transformer(bert, max_seq_length=32)
    whole = SentenceTransformer(modules=[words, modules.Pooling(16)], device="cpu")
    whole.save(str(home / "model"))
    return str(home / "model")


def test_hybrid_retrieval_with_a_real_model(model):
    embedder = SentenceEmbedder(model)
    texts = ["pages start at zero", "names are similar", "amounts are in cents"]
    rows = embedder.embed(texts)
    assert rows.shape == (3, 16)
    assert rows.dtype == np.float64
    np.testing.assert_allclose(rows, embedder.embed(texts))
    assert embedder.name == model
    found = Retriever(embedder).candidates(
        [Document(str(n), "fact", text) for n, text in enumerate(texts)], "names are similar"
    )["fact"]
    assert found[0].document.id == "1"
    assert (found[0].by_words, found[0].by_vectors) == (1, 1)
    memory = ExperienceMemory(retriever=Retriever(embedder))
    memory.add([Lesson("fact", text) for text in texts])
    assert memory.select("names are similar").items[0].body == texts[1]
