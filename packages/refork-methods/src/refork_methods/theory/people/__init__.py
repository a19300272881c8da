"""Real people through a web page: a study as a document, its conduct, its results.

Source: arXiv:2606.26448 (its rules of quality; page, protocol and formats are ours).
"""

from refork_methods.theory.people.codes import Completion
from refork_methods.theory.people.conduct import Conduct, Standing
from refork_methods.theory.people.design import read_experiment
from refork_methods.theory.people.document import Study, document
from refork_methods.theory.people.record import Answer
from refork_methods.theory.people.rehearse import rehearse
from refork_methods.theory.people.results import Results, read_results
from refork_methods.theory.people.texts import Texts, default_texts, read_texts

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
