"""Storage of any kind through fsspec: reading files, and making output files appear atomically."""
