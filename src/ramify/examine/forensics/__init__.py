"""Model forensics: why did the model do it? One edit at a time, predictions first, negatives bounded.

Source: arXiv 2606.26071.
"""

from ramify.examine.forensics.arm import Arm, End, Outcome
from ramify.examine.forensics.case import Case
from ramify.examine.forensics.design import BASE, ArmPlan, Design
from ramify.examine.forensics.evidence import EvidenceItem, Result, mark
from ramify.examine.forensics.export import case_json
from ramify.examine.forensics.hypothesis import Hypothesis, Prediction
from ramify.examine.forensics.incident import Incident, Target
from ramify.examine.forensics.intervention import Applied, Edit, Intervention, factorial
from ramify.examine.forensics.markdown import case_markdown
from ramify.examine.forensics.standards import Answer
from ramify.examine.forensics.statistics import (
    Negative,
    difference,
    interaction,
    negative,
    rate,
    ratio,
    scale,
    trend,
)
from ramify.examine.forensics.table import Table, ach_table

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
