"""For tests of files whose old records are given back to the file system."""

from __future__ import annotations

import pytest

from torchtop.session.thinning import punch


@pytest.fixture(scope="module", autouse=True)
def holes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip them where the file system cannot give blocks back."""
    file = tmp_path_factory.mktemp("disk") / "file"
    file.write_bytes(b"x" * 65536)
    if not punch(file, 4096, 8192):
        pytest.skip("this file system cannot give blocks back")
