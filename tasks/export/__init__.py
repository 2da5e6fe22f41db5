"""A trained run as one file that answers and exits by itself, in ONNX or StableHLO: `python -m tasks.export --help`.

`policy` says when a row halts and what it answers, `onnx_file` and `stablehlo` write that down for a runtime.
"""
