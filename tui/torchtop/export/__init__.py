"""A session in the formats of other programs: CSV tables, a Chrome trace, TensorBoard's events.

Each format is a module with one function that writes it. They read the records as a stream, so that
a day's session needs no more memory than a minute's.
"""

from __future__ import annotations
