"""Whether an output is whole: files, manifests, and documents held against their sources."""
