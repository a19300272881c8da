"""Credit, training and organisms."""
