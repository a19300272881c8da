"""What a checker can ask of an argument, one pure and exact function a file."""
