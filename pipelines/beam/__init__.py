"""What the transforms share: DoFns, coders, elements and rows, shards, parameters, metrics."""
