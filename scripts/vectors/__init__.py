"""The golden vectors: their cases, and the exact arithmetic that answers them without `ponder_ref` or NumPy."""
