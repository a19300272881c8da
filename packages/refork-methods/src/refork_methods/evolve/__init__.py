"""Agents and their judges that evolve together: scores know who gave them, and die with their judge.

Source: arXiv:2606.26294.
"""
