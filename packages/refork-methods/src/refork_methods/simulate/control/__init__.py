"""Controls of a simulator: perturb, stingy, fictional."""
