"""Attempts to get out of the product's sandbox, and a place that shows what they did."""
