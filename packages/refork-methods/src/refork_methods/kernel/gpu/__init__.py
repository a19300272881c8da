"""GPU kernels diagnosed from exports taken anywhere, and from code compiled here; no GPU is needed.

Source: arXiv 2606.26453 for the tools. Readers and metric tables are ours, after what the programs print.
"""
