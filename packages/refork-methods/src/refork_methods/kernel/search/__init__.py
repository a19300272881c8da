"""Search for a faster version of a kernel: written, built, checked, timed, diagnosed, and written from again.

Source: arXiv 2606.26453 for the method; its code and constants are not published.
"""
