"""One reader per language: source to symbols, imports and calls."""
