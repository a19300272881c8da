"""A two-step agent of known success: 0.55 from the start, 0.9 after thinking, 0.2 after guessing."""

from refork.policies.base import Sampling

TABLE = {
    "": {" think": 0.5, " guess": 0.5},
    " think": {" right": 0.9, " wrong": 0.1},
    " guess": {" right": 0.2, " wrong": 0.8},
    " right": {"": 1.0},
    " wrong": {"": 1.0},
}
PLAIN = Sampling(max_tokens=8)
