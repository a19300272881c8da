"""Steer a policy: add, clamp or remove a direction of its hidden states while it draws."""

from ramify.examine.steer.context import steering
from ramify.examine.steer.directions import difference_of_means, random_directions
from ramify.examine.steer.steers import AblateDirection, AddVector, ClampDirection, Steer

__all__ = [
    "AblateDirection",
    "AddVector",
    "ClampDirection",
    "Steer",
    "difference_of_means",
    "random_directions",
    "steering",
]
