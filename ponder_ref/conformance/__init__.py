"""The judge: runs any backend against the standard and says, requirement by requirement, whether it conforms.

    python -m ponder_ref.conformance --backend ponder_torch

`judge` is the same from Python. Needs Hypothesis besides NumPy.
"""
