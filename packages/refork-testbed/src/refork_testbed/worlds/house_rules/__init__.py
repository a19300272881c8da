"""Sessions under a house rule, and planted agents. What a rule forbids is told by the checkers of ``pin``.

Source: arXiv 2606.22528 (nine rules, self-contained triggers, mechanical grading).
"""
