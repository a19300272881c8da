"""A scripted world with a hidden truth and judges that drift: where the claims of the search are measured."""
