from __future__ import annotations

import os

# Before Textual reads them: what a screen looks like must not depend on who runs the tests.
os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
for _name in [n for n in os.environ if n == "NO_COLOR" or n.startswith("TEXTUAL")]:
    del os.environ[_name]
