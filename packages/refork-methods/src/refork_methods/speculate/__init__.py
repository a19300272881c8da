"""Draw branches faster, losslessly: a drafter proposes, the model verifies, a scheduler says how much.

Source: arXiv 2607.05147 (DSpark); the parallel backbone is that of arXiv 2602.06036 (DFlash).
"""
