"""What runs inside the sandbox's processes: standard library only; nothing else of Ramify is there."""
