"""Exports: the token files of a build in the formats that training programs read.

`formats` is the registry of the formats, their options, and their writers, each in its own module.
`export` runs an export from its checks to its manifest; `files` has what all writers use. The
formats of rows (`documents`, `packed`) are written by Beam pipelines: `row_export` plans them,
`row_pipeline` runs them, and `row_tasks` is the work of their workers.
"""
