"""Editors and judges of a directory of prompts or code: any chat model, or any command in a sandbox."""
