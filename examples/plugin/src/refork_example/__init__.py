"""What one package adds to Refork, each in a file of its own."""
