"""What a policy acts on."""
