"""What connects the plain functions with Beam: DoFns, coders, elements, rows, steps of shards."""
