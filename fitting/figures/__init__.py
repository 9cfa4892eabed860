"""Figures: frames and fits in, a matplotlib Figure out. No query, no fit, no file."""
