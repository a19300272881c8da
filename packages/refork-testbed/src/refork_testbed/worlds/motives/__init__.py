"""Six miniature environments and scripted agents whose motive is known.

Source: reconstructed from what arXiv 2606.26071 says of its six cases, whose code we could not get.
"""
