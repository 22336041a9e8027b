"""Parts of cross-modal hashing: encoders, base methods, rankings."""
