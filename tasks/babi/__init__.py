"""The bAbI tasks: stories, their generator and solver, the released files, and the arrays that a model takes.

stories.py   what a story is            worlds/      a generator per task     generate.py  data sets of stories
text.py      the file format            solve/       answers by the rules     files.py     the released layouts
encode.py    words to integers          sampling.py  batches by number        download.py  the public archive
"""
