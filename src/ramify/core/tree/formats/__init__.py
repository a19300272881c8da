"""Readers and writers, one file each."""
