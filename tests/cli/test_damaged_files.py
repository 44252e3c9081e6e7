"""Sessions whose files are damaged: compared, reported and exported as far as they go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.typed import Typed

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions" / "straggler"
ODD = b"""[1,2]
{"kind":"minute","latency":[1],"ranks":[1],"gpus":{"a":1},"phases_us":3}
{"kind":"analysis","phases":[1],"ranks":[1],"verdict":"x","throughput":4,"recent_step_ms":7}
{"kind":"analysis","findings":{"a":1},"step_ms":[],"scalars":3,"mono_ns":-5}
{"kind":"steps","step":5,"end_ns":"x"}
{"kind":"steps","step":[1,2,null],"end_ns":[null,"x"],"data_us":[true]}
{"kind":"scalars","step":"x","values":[1]}
{"kind":"pause","start_ns":"x","duration_us":[]}
{"kind":"tick","gpus":[1],"host":2}
{"kind":"header","gpus":[1,2],"rank":0,"device":3}
"""
"""Records that are JSON, and of which nothing is what it should be."""

Harm = Callable[[Path], object]
HARMS: dict[str, Harm] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "torn": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "no text": lambda file: file.write_bytes(bytes(range(256)) * 20),
    "odd": lambda file: file.write_bytes(file.read_bytes() + ODD),
    "odd alone": lambda file: file.write_bytes(ODD),
}
COMMANDS = {
    "compare": ("compare", "s", str(RECORDED)),
    "report": ("report", "./s", "-o", "r.html"),
    "csv": ("export", "./s", "--format", "csv", "-o", "c"),
    "perfetto": ("export", "./s", "--format", "perfetto", "-o", "t.json"),
    "tensorboard": ("export", "./s", "--format", "tensorboard", "-o", "tb"),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("files", ["*.json*", "ranks/*", "nodes/*/*"])
def test_each_command_ends_with_a_result_or_a_line(
    harm: str,
    files: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(RECORDED, tmp_path / "s")
    for file in (tmp_path / "s").glob(files):
        HARMS[harm](file)
    typed = Typed(tmp_path / "home", tmp_path, monkeypatch, capsys)
    for name, words in COMMANDS.items():
        if name == "report":
            pytest.importorskip("matplotlib")
        if name == "tensorboard":
            pytest.importorskip("tensorboard")
        status, _, told = typed(*words)
        assert status in (0, 2), (name, told)
        assert "mistake" not in told and len(told.splitlines()) <= 1, (name, told)
    assert not (tmp_path / "home" / "viewer-error.txt").exists()
