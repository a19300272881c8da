"""What decided a rollout, and what inside the network did."""
