"""Backends with one defect each, to try the judge on: it must reject every one, by a requirement that names the defect.

    python -m ponder_ref.conformance.mutants

prints what it says of each, and of backends that are right but different, which it must not reject.
"""
