"""Rejected documents and bad files: reasons, tables and thresholds."""
