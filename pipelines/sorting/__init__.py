"""What external sorts share: run files of rows, list columns as arrays, and keys to sort by."""
