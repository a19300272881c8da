"""What a simulator's answer says the world said: strictly the text inside the tag, nothing else.

What is judged, served and compared is this text alone, so that words around it can earn nothing.

Source: arXiv 2606.24597 for the rule (no reasoning, the last tagged block); the escaping of tags that an
observation itself holds is ours (see :mod:`refork_methods.simulate.prompt`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from refork.thoughts import without_blocks
from refork_methods.simulate.prompt import TAG, THINK, unescaped

_THOUGHTS = re.compile(rf"<(/?){THINK}>")


@lru_cache(maxsize=16)
def _block(tag: str) -> re.Pattern[str]:
    name = re.escape(tag)
    return re.compile(rf"<{name}>((?:(?!</?{name}>).)*)</{name}>", re.DOTALL)


def without_think(text: str) -> str:
    """The text without its think blocks, and otherwise as it is.

    Only the tag that simulators are taught counts: an observation may hold other words for reasoning.
    """
    return without_blocks(text, _THOUGHTS)


def extract_prediction(text: str, tag: str = TAG) -> str | None:
    """The text inside the last complete tagged block after all think blocks; None where there is none.

    A block holds no other tag of its name: of nested ones the inner counts, of overlapping ones what is
    complete. Tags that were escaped come back as they were.
    """
    found = _block(tag).findall(without_think(text))
    return unescaped(found[-1], tag) if found else None


def bare(text: str, tag: str = TAG) -> bool:
    """Whether an answer is its reasoning and one tagged block, and says nothing beside them."""
    rest = without_think(text)
    return len(_block(tag).findall(rest)) == 1 and not _block(tag).sub("", rest).strip()


def thoughts(text: str, tag: str = TAG) -> str:
    """What stands before the first tagged block outside of reasoning, think tags taken off: the reasoning."""
    open_ = re.compile(rf"<{re.escape(tag)}>")
    depth, end = 0, len(text)
    marks = re.compile(rf"{_THOUGHTS.pattern}|{open_.pattern}")
    for mark in marks.finditer(text):
        if open_.fullmatch(mark.group()):
            if depth == 0:
                end = mark.start()
                break
        else:
            depth = max(0, depth + (1 if mark.group()[1] != "/" else -1))
    return unescaped(_THOUGHTS.sub("", text[:end]), tag).strip()


def matches(prediction: str | None, observation: str) -> bool:
    """Whether a prediction is the observation to the letter, white space at its end aside."""
    return prediction is not None and prediction.rstrip() == observation.rstrip()
