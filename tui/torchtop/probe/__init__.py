"""The probe: runs inside each rank. Stdlib and torch only, Python 3.8 and later.

Staged as a private package next to `rank.py`, so it loads into any interpreter's environment.
"""
