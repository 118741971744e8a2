"""Data that examples and the demo read."""
