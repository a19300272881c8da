"""Model forensics: why did the model do it? One edit at a time, predictions first, negatives bounded.

Source: arXiv 2606.26071.
"""

from refork_methods.forensics.arm import Arm, End, Outcome
from refork_methods.forensics.case import Case
from refork_methods.forensics.design import BASE, ArmPlan, Design
from refork_methods.forensics.evidence import EvidenceItem, Result, mark
from refork_methods.forensics.export import case_json
from refork_methods.forensics.hypothesis import Hypothesis, Prediction
from refork_methods.forensics.incident import Incident, Target
from refork_methods.forensics.intervention import Applied, Edit, Intervention, factorial
from refork_methods.forensics.standards import Answer
from refork_methods.forensics.statistics import (
    Negative,
    difference,
    interaction,
    negative,
    rate,
    ratio,
    scale,
    trend,
)
from refork_methods.forensics.table import Table, ach_table

__all__ = [
    "BASE",
    "Answer",
    "Applied",
    "Arm",
    "ArmPlan",
    "Case",
    "Design",
    "Edit",
    "End",
    "EvidenceItem",
    "Hypothesis",
    "Incident",
    "Intervention",
    "Negative",
    "Outcome",
    "Prediction",
    "Result",
    "Table",
    "Target",
    "ach_table",
    "case_json",
    "difference",
    "factorial",
    "interaction",
    "mark",
    "negative",
    "rate",
    "ratio",
    "scale",
    "trend",
]
