"""Does a compacted context still hold the rule? Exactly, by its bytes, and roughly, by its words.

Source: arXiv:2606.22528 judges survival with language models and checks them with a keyword heuristic (83 %
agreement). Here the exact account comes first, and the word count only tells a paraphrase from a loss.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from refork.compaction import CompactionResult, Fate, fate
from refork.formats.openai_chat import text_of
from refork.types import Json, Message

#: Share of a rule's content words that new text must hold to count as a paraphrase of it.
PARAPHRASE = 0.6

Survival: TypeAlias = Literal["verbatim", "paraphrase", "lost"]

# A word, a name or a number; in Chinese, a character.
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff](?:[\w.@/-]*[^\W_])?")
# Negations are left out too, so the recall of a rule is also that of its opposite.
_STOP = frozenset(
    {"a", "all", "always", "an", "and", "any", "are", "as", "at", "be", "by", "do", "for", "from", "has"}
    | {"if", "in", "is", "it", "may", "must", "never", "no", "not", "of", "on", "only", "or", "our", "rule"}
    | {"so", "than", "that", "the", "this", "to", "unless", "use", "we", "when", "with", "you", "your"}
)


@dataclass(frozen=True, slots=True)
class RuleSurvival:
    """What a compaction left of a rule.

    ``fate``: what became of its bytes. ``recall``: the share of its content words in the text that the
    compaction wrote, None where it wrote none.
    """

    fate: Fate
    recall: float | None
    threshold: float = PARAPHRASE

    @property
    def survival(self) -> Survival:
        """Verbatim, as a paraphrase, or not at all."""
        if self.fate == "visible":
            return "verbatim"
        return "paraphrase" if (self.recall or 0.0) >= self.threshold else "lost"

    @property
    def survived(self) -> bool:
        """Whether the rule is there in any form."""
        return self.survival != "lost"

    def to_json(self) -> Json:
        """Plain fields."""
        return {"fate": self.fate, "recall": self.recall, "survival": self.survival}


def content_words(text: str) -> frozenset[str]:
    """Words of a text that carry meaning, in lower case: stop words left out, numbers and names kept."""
    return frozenset(_WORD.findall(text.lower())) - _STOP


def recall_of(rule: str, messages: Sequence[Message]) -> float:
    """Share of a rule's content words that messages hold; 1 for a rule without any."""
    wanted = content_words(rule)
    found = frozenset[str]().union(*(content_words(text_of(m)) for m in messages))
    return len(wanted & found) / len(wanted) if wanted else 1.0


def survival_of(
    rule: str, before: Sequence[Message], result: CompactionResult, threshold: float = PARAPHRASE
) -> RuleSurvival:
    """What a compaction left of a rule that stood in ``before``.

    Raises nothing: a rule that was never there has the fate ``absent``.
    """
    new = set(result.inserted)
    written = [m for m in result.messages if m.get("id") in new]
    return RuleSurvival(fate(rule, before, result), recall_of(rule, written) if written else None, threshold)
