"""A phone and a desktop as pure functions of a state and an action, seen as trees of elements."""
