"""Searches whose nodes are programs, judges or theories."""
