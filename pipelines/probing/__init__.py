"""Probe of the inputs: a bounded sample of the files, checked against the configuration."""
