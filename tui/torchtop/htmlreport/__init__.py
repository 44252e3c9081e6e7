"""Reports as one HTML file: readable offline, in light and dark, on a phone and on paper.

The plots are drawn by Matplotlib as SVG within the page. The file holds no script and loads
nothing: its content policy forbids both, whatever a session's text may try. Colours are variables
of the page, so that one drawing serves light and dark. Weighed against an interactive library: that
would put nearly 5 MB of script into each file; this makes some 200 kB, and values stand in tables.
"""

from __future__ import annotations
