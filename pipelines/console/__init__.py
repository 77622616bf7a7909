"""Terminal output: progress, safe text, sizes."""
