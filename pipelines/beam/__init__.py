"""Beam code shared by the transforms: DoFns, coders, elements, rows, shards and metrics."""
