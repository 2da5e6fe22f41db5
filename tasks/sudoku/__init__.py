"""Sudoku: fill in the blanks. Puzzles of 4×4, 6×6 and 9×9 cells with one solution each, made from a seed.

puzzles.py has the grids and a solver, bases.py the base puzzles of each split, draws.py makes examples of them;
settings.py and task.py are the task as the harness wants it; model_torch.py and model_jax.py are its networks.
"""
