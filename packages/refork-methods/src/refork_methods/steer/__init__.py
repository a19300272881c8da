"""Steer a policy: add, clamp or remove a direction of its hidden states while it draws."""

from refork_methods.steer.context import steering
from refork_methods.steer.directions import difference_of_means, random_directions
from refork_methods.steer.steers import AblateDirection, AddVector, ClampDirection, Steer

__all__ = [
    "AblateDirection",
    "AddVector",
    "ClampDirection",
    "Steer",
    "difference_of_means",
    "random_directions",
    "steering",
]
