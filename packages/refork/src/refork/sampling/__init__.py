"""How tokens are drawn: settings, addressed noise, grammars, and from logits to a token."""
