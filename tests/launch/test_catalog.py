"""The catalog: order, keys, names and options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchtop.launch.catalog import Catalog, CatalogError, load_catalog
from torchtop_workloads.registry import WORKLOADS

OWN = """
[workloads.mine]
script = "train.py"
args = ["--epochs", "3"]
summary = "ours"
options = { lr = 0.1, "batch-size" = 8, fast = false }
[workloads.plain]
module = "pkg.train"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def load_with(here: Path, text: str) -> Catalog:
    file = here / "torchtop.toml"
    file.write_text(text)
    file.chmod(0o600)
    return load_catalog(here)


def test_the_built_in_ones_come_first_with_keys_in_their_order(here: Path) -> None:
    entries = load_catalog(here).entries
    assert [entry.name for entry in entries] == [workload.name for workload in WORKLOADS]
    assert [entry.key for entry in entries[:2]] == ["1", "2"]
    assert entries[0].name == "resnet50-cifar10"
    assert all(entry.source == "builtin" for entry in entries)


def test_some_built_in_ones_leave_their_keys_to_the_users_own(here: Path) -> None:
    keys = {entry.name: entry.key for entry in load_catalog(here).entries}
    assert [keys[name] for name in ("resnet50-imagenet", "bert-base", "gpt2-small")] == [None] * 3
    assert sorted(key for key in keys.values() if key) == list("1234567")


def test_the_users_own_follow_with_the_next_keys(here: Path) -> None:
    # when
    catalog = load_with(here, OWN)
    # then
    mine = catalog.find("mine")
    assert catalog.problems == ()
    assert mine.source == "file"
    assert mine.key == str(1 + sum(workload.keyed for workload in WORKLOADS))
    assert catalog.by_key(mine.key) is mine
    assert mine.target == str(here / "train.py")
    assert catalog.find("plain").target == "pkg.train"


def test_a_file_takes_neither_name_nor_key_of_a_built_in(here: Path) -> None:
    # given
    name = WORKLOADS[0].name
    # when
    catalog = load_with(here, f"[workloads.{name}]\nscript = 'evil.py'\n")
    # then
    assert catalog.entries == load_catalog(here.parent).entries
    assert catalog.find(name).source == "builtin"
    assert len(catalog.problems) == 1


def test_from_the_tenth_on_there_is_no_key(here: Path) -> None:
    # given
    many = "".join(f"[workloads.w{n}]\nscript = 'w.py'\n" for n in range(12))
    # when
    entries = load_with(here, many).entries
    # then
    keys = [entry.key for entry in entries]
    assert [key for key in keys if key] == list("123456789")
    assert keys[-10:] == [None] * 10


def test_a_bad_file_is_a_problem_and_the_built_in_ones_stay(here: Path) -> None:
    catalog = load_with(here, "not toml")
    assert len(catalog.entries) == len(WORKLOADS)
    assert "line 1: not valid TOML" in catalog.problems[0]


@pytest.mark.parametrize("name", ["resnet50-cifar", "resnet50_cifar10", "resnet50-cifar100"])
def test_an_unknown_name_gets_the_nearest_one(here: Path, name: str) -> None:
    with pytest.raises(CatalogError) as caught:
        load_catalog(here).find(name)
    assert str(caught.value) == f"there is no workload {name}: did you mean resnet50-cifar10?"
    assert caught.value.exit_status == 2


def test_a_name_unlike_any_gets_all_of_them(here: Path) -> None:
    with pytest.raises(CatalogError, match="there are resnet50-cifar10, compute-heavy, "):
        load_catalog(here).find("xyzzy")


def test_options_come_back_in_one_spelling(here: Path) -> None:
    entry = load_catalog(here).find("resnet50-cifar10")
    typed = {"pin-memory": "yes", "batch": "+16", "lr": "1e-3", "compile": "OFF"}
    assert entry.validate(typed) == {
        "pin_memory": "on",
        "batch": "16",
        "lr": "0.001",
        "compile": "off",
    }


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("batch", "abc", "-o batch=abc: batch must be a whole number, not 'abc'"),
        ("batch", "0", "-o batch=0: batch must be at least 1, not 0"),
        ("compile", "maybe", "-o compile=maybe: compile must be on or off, not 'maybe'"),
        ("parallel", "fsdp", "-o parallel=fsdp: parallel must be ddp or dp or single, not 'fsdp'"),
        ("batc", "1", "-o batc: resnet50-cifar10 has no such option: did you mean batch?"),
        ("lr", "\x1b[2J", r"-o lr=\x1b[2J: lr must be a number, not '\x1b[2J'"),
    ],
)
def test_a_bad_option_is_one_line(here: Path, name: str, text: str, wanted: str) -> None:
    with pytest.raises(CatalogError) as caught:
        load_catalog(here).find("resnet50-cifar10").validate({name: text})
    assert str(caught.value) == wanted


def test_options_of_a_file_are_checked_by_the_type_of_their_value(here: Path) -> None:
    mine = load_with(here, OWN).find("mine")
    assert mine.validate({"batch_size": "16", "fast": "1"}) == {"batch-size": "16", "fast": "on"}
    with pytest.raises(CatalogError, match="-o batch-size=x: batch-size must be a whole number"):
        mine.validate({"batch-size": "x"})


def test_a_workload_without_options_says_where_to_name_them(here: Path) -> None:
    plain = load_with(here, OWN).find("plain")
    with pytest.raises(CatalogError, match=r"-o lr: .*\[workloads.plain.options\] in "):
        plain.validate({"lr": "1"})


def test_arguments_of_a_built_in_are_what_its_script_reads(here: Path) -> None:
    # given
    from torchtop_workloads.arguments import parse

    entry = load_catalog(here).find("resnet50-cifar10")
    # when
    words = entry.arguments({"batch": "16", "pin-memory": "off"})
    # then
    assert entry.builtin is not None
    given = {k: v for k, v in parse(entry.builtin, words).items() if v is not None}
    assert given == {"batch": 16, "pin_memory": False}


def test_arguments_of_the_users_own_keep_their_spelling(here: Path) -> None:
    mine = load_with(here, OWN).find("mine")
    words = mine.arguments({"batch_size": "16", "fast": "on"})
    assert words == ["--epochs", "3", "--lr=0.1", "--batch-size=16", "--fast"]


def test_the_json_form_is_json_and_whole(here: Path) -> None:
    # when
    data = json.loads(json.dumps(load_with(here, OWN).as_json(), allow_nan=False))
    # then
    assert [w["name"] for w in data["workloads"]][-2:] == ["mine", "plain"]
    first, mine = data["workloads"][0], data["workloads"][-2]
    assert first["options"][0]["name"] == "batch"
    assert (first["key"], first["file"], first["command"]) == ("1", None, None)
    assert mine["file"] == str(here / "torchtop.toml")
    assert mine["command"].startswith(f"torchrun {here}/train.py --epochs 3 --lr=0.1")
