"""A language world model: a model that answers as environments do, trained, measured and acted in.

Source: arXiv 2606.24597.
"""
