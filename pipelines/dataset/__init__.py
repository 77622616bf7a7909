"""Token files as a dataset: names, columns, generations, statistics; reading and inspecting."""
