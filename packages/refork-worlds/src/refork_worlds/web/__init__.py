"""Real pages in headless Chromium, seen through its accessibility tree."""
