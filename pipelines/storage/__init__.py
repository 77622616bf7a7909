"""Storage of any kind: what is read, and how output files appear, through fsspec."""
