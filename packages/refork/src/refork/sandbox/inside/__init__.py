"""What runs inside the sandbox's processes: standard library only; nothing else of Refork is there."""
