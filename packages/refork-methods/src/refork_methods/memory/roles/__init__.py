"""The memory's roles: who reflects, screens, chooses, writes code, repairs it; by a chat model or by rule."""
