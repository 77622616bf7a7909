"""Exports: the token files of a build, in the formats that training programs read.

`formats` is the registry: the formats, their options, and the functions that write them, a module
each. `export` runs an export from its checks to its manifest, `files` has what all formats write
with. The formats of rows (`documents`, `packed`) are written by Beam pipelines: `row_export` plans
them, `row_pipeline` runs them, `row_tasks` is what their workers do.
"""
