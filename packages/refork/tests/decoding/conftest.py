"""Tiny models, built once per session."""

import pytest

from refork.decoding.backbone import Backbone
from support import decoder_models as models


@pytest.fixture(scope="session")
def built():
    """Model and backbone by architecture."""
    made = {}

    def build(name):
        if name not in made:
            model = models.make(name)
            made[name] = model, Backbone(model)
        return made[name]

    return build
