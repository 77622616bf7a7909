"""Parts shared by the external sorts: run files of rows, list columns as arrays, and sort keys."""
