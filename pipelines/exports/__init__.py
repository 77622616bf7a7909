"""Exports: the token files of a build, in the forms that training programs read.

`pipelines/dataset/reading.py` reads them, `formats.py` lists the forms and their options,
`export.py` runs an export from its checks to its manifest; each form is a module of its own.
"""
