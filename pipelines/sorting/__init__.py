"""What external sorts share: list columns as arrays, and keys of a shuffle."""
