"""Splits that need scene graphs: by lists of pictures."""
