"""Charts, pages and number words: everything that is shown on paper goes through here."""
