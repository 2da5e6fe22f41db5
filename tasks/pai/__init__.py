"""Paired associative inference (paper §3.3 and its appendix; spec/annex/tasks.md): which picture belongs to the cue?

A memory holds 16 sequences of pictures, cut into neighbouring pairs. A query shows a cue and two pictures, of which one
stands in the cue's sequence; where that is no neighbour, the answer needs several pairs.

images.py makes pictures from a seed, own.py takes anybody's, released.py reads the files published with the task.
trials.py draws memories and queries, sequences.py finds the types of queries from a memory's pairs, layout.py says how
examples cross into a backend, data.py makes batches by number.
"""
