"""Crosscoders: one sparse dictionary over the activations of two models, and what only one of them has."""

from refork_methods.crosscoder.audit import claim, exclusivity
from refork_methods.crosscoder.classes import latent_scaling, relative_norm
from refork_methods.crosscoder.exchange import load, load_dictionary_learning, save, save_dictionary_learning
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import Normalizer, fit_normalizer
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.rank import rank_features
from refork_methods.crosscoder.sources import Aligned, ArrayPairs, PolicyPairs, StorePairs
from refork_methods.crosscoder.train import TrainSettings, train

__all__ = [
    "Aligned",
    "ArrayPairs",
    "CrossCoder",
    "Normalizer",
    "Partition",
    "PolicyPairs",
    "StorePairs",
    "TrainSettings",
    "claim",
    "exclusivity",
    "fit_normalizer",
    "latent_scaling",
    "load",
    "load_dictionary_learning",
    "rank_features",
    "relative_norm",
    "save",
    "save_dictionary_learning",
    "train",
]
