"""Model forensics: why did the model do it? One edit at a time, predictions first, negatives bounded.

Source: arXiv 2606.26071.
"""

from refork.examine.forensics.arm import Arm, End, Outcome
from refork.examine.forensics.case import Case
from refork.examine.forensics.design import BASE, ArmPlan, Design
from refork.examine.forensics.evidence import EvidenceItem, Result, mark
from refork.examine.forensics.export import case_json
from refork.examine.forensics.hypothesis import Hypothesis, Prediction
from refork.examine.forensics.incident import Incident, Target
from refork.examine.forensics.intervention import Applied, Edit, Intervention, factorial
from refork.examine.forensics.markdown import case_markdown
from refork.examine.forensics.standards import Answer
from refork.examine.forensics.statistics import (
    Negative,
    difference,
    interaction,
    negative,
    rate,
    ratio,
    scale,
    trend,
)
from refork.examine.forensics.table import Table, ach_table

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
    "case_markdown",
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
