"""``household:SIZE``: rooms, keys, doors, containers and objects to deliver."""
