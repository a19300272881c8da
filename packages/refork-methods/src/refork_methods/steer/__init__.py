"""Steer a policy: add, clamp or remove a direction of its hidden states while it draws."""

from refork.examine.steer.context import steering
from refork.examine.steer.directions import difference_of_means, random_directions
from refork.examine.steer.steers import AblateDirection, AddVector, ClampDirection, Steer

__all__ = [
    "AblateDirection",
    "AddVector",
    "ClampDirection",
    "Steer",
    "difference_of_means",
    "random_directions",
    "steering",
]
