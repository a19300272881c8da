"""The live viewer: a local page on trees that may be growing, and the same page as one file to share."""
