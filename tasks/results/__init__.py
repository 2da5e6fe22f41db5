"""The page of results, made from run folders: `python -m tasks.results`. A task may have a section of its own."""
