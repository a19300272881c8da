"""Embedders: a sentence-transformers model, or an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from jaxtyping import Float

from refork.errors import MissingExtra, ServerError
from refork.policies.remote.endpoint import Endpoint


@final
class SentenceEmbedder:
    """A sentence-transformers model, by name or folder.

    Raises:
        MissingExtra: the package is not installed (extra ``dense``).
    """

    def __init__(self, model: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtra("sentence-transformers", "dense") from error
        self._model = SentenceTransformer(model)
        self._name = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """One row per text."""
        return np.asarray(self._model.encode(list(texts), show_progress_bar=False), dtype=np.float64)


@final
class EndpointEmbedder:
    """The ``/embeddings`` of an OpenAI-compatible server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        """Server and model."""
        return f"{self._endpoint.server}#{self._endpoint.model}"

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """One row per text. Raises ServerError where the answer is no list of vectors."""
        answer = self._endpoint.embeddings(list(texts))
        try:
            rows = sorted(answer["data"], key=lambda one: int(one["index"]))
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError("the answer holds no vectors", where=self.name) from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ServerError(f"{len(vectors)} vectors came for {len(texts)} texts", where=self.name)
        return vectors
