"""Real people through a web page: a study as a document, its conduct, its results.

Source: arXiv:2606.26448 (its rules of quality; page, protocol and formats are ours).
"""

from refork.discover.theory.people.codes import Completion
from refork.discover.theory.people.conduct import Conduct, Standing
from refork.discover.theory.people.design import read_experiment
from refork.discover.theory.people.document import Study, document
from refork.discover.theory.people.record import Answer
from refork.discover.theory.people.rehearse import rehearse
from refork.discover.theory.people.results import Results, read_results
from refork.discover.theory.people.texts import Texts, default_texts, read_texts

__all__ = [
    "Answer",
    "Completion",
    "Conduct",
    "Results",
    "Standing",
    "Study",
    "Texts",
    "default_texts",
    "document",
    "read_experiment",
    "read_results",
    "read_texts",
    "rehearse",
]
