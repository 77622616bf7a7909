"""What is wrong with documents and files: reasons, tables, limits, and taking them after all."""
