"""``miniapps``: five SQLite-backed apps, thirty scenario templates, and agents whose slips are known.

``world`` holds the world; ``agents`` the scripted agent and ``play``, which lets one act.
"""
