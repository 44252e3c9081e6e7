"""What viewers ask of this rank: the supervisor leaves a file beside the ranks' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from ..session.records import INSPECT_FILE

_MOST_BYTES = 4096


class RequestFile:
    """The last request, where there is a new one. One that is there already is somebody else's.

    Args:
        directory: the session's ``ranks`` folder.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / INSPECT_FILE
        self._seen = self._stamp()
        self._id: Any = None

    def poll(self) -> Optional[Dict[str, Any]]:
        """The request that has been made since the last call, or None.

        Each node's supervisor may leave the same one: it counts once.
        """
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return None
        self._seen = stamp
        try:
            with self._path.open("rb") as file:
                request = json.loads(file.read(_MOST_BYTES))
        except (OSError, ValueError):
            return None
        if not isinstance(request, dict) or request.get("id") in (None, self._id):
            return None
        self._id = request["id"]
        return request

    def _stamp(self) -> Optional[Tuple[int, int]]:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
