"""Kernels that get fast: measured, diagnosed by deterministic experts, rewritten, checked and timed again.

Source: arXiv 2606.26453 for the method (tools that turn counters into causes and actions, two stages, a tree
search over whole checked kernels). Its code is not published; what is reconstructed here says so where it is.
"""
