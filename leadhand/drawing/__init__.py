"""Drawings: the shape of steps in layers, their layout, SVG and text (pure)."""
