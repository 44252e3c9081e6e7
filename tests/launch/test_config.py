"""torchtop.toml: what it may say, and when it is believed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from torchtop.launch.config import Config, give_consent, load_config, needs_consent


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory, with an empty configuration directory beside it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(folder: Path, text: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "torchtop.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(0o600)
    return file


def write_own(here: Path, text: str) -> Path:
    return write(here.parent / "config" / "torchtop", text)


def only_problem(config: Config) -> str:
    (problem,) = config.problems
    assert "\n" not in problem
    return problem


FULL = """
[workloads.mine]
script = "sub/train.py"
args = ["--epochs", 3]
gpus = "all"
nproc = 2
env = { DATA = "/data set", OMP_NUM_THREADS = 4 }
cwd = "sub"
summary = "our model"
options = { lr = 0.1, size = 3, fast = true, slow = false, name = "a b" }
"""


def test_no_file_is_no_workload_and_no_problem(here: Path) -> None:
    assert load_config(here) == Config()


def test_every_setting_arrives_and_paths_begin_at_the_file(here: Path) -> None:
    # given
    file = write(here, FULL)
    # when
    (workload,) = load_config(here).workloads
    # then
    assert (workload.name, workload.file, workload.trusted) == ("mine", file, False)
    assert workload.script == here / "sub/train.py"
    assert workload.cwd == here / "sub"
    assert (workload.gpus, workload.nproc) == ("all", 2)
    assert workload.env == {"DATA": "/data set", "OMP_NUM_THREADS": "4"}
    assert workload.summary == "our model"
    types = {option.name: option.type for option in workload.options}
    assert types == {"lr": "float", "size": "int", "fast": "bool", "slow": "bool", "name": "str"}


def test_options_follow_the_arguments(here: Path) -> None:
    write(here, FULL)
    (workload,) = load_config(here).workloads
    assert workload.arguments({"lr": 0.2, "slow": True, "fast": False}) == [
        *("--epochs", "3", "--lr=0.2", "--size=3", "--slow", "--name=a b")
    ]


@pytest.mark.fault(30, "a hostile torchtop.toml", "its command is shown, and asked for")
def test_the_shown_command_holds_all_that_is_run_and_no_escape(here: Path) -> None:
    # given
    write(here, FULL.replace('"a b"', '"\\u001b[2J\\u202eevil"'))
    # when
    shown = load_config(here).workloads[0].shown_command()
    # then
    assert shown.startswith(f"cd {here}/sub && DATA='/data set' OMP_NUM_THREADS=4 torchrun ")
    assert f"--nproc-per-node=gpu {here}/sub/train.py --epochs 3 --lr=0.1" in shown
    assert shown.isprintable()
    assert r"\x1b[2J\u202eevil" in shown


@pytest.mark.parametrize(
    ("table", "target"),
    [
        ('module = "pkg.train"', "torchrun -m pkg.train"),
        ('command = ["accelerate", "launch", "a b.py"]', "accelerate launch 'a b.py'"),
    ],
)
def test_a_module_and_a_command_are_accepted(here: Path, table: str, target: str) -> None:
    write(here, f"[workloads.mine]\n{table}\n")
    assert load_config(here).workloads[0].shown_command() == target


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[workloads.a]\nscirpt = 'x.py'", "workloads.a has no setting 'scirpt': did you mean scr"),
        ("[workload.a]\nscript = 'x.py'", "there is no table [workload]: did you mean workloads?"),
        ("[workloads.a]\nscript = 3", 'workloads.a.script must be text in quotes, such as "train"'),
        ("[workloads.a]\nscript = ''", "workloads.a.script must be text in quotes"),
        ("[workloads.a]\nscript = 'x.py'\ngpus = 0", "workloads.a.gpus must be a whole number"),
        (
            "[workloads.a]\nscript = 'x.py'\nnproc = true",
            "workloads.a.nproc must be a whole number",
        ),
        ("[workloads.a]\nscript = 'x.py'\nargs = '-v'", "workloads.a.args must be a list of texts"),
        ("[workloads.a]\nscript = 'x.py'\nargs = [true]", "workloads.a.args must be a list of tex"),
        (
            "[workloads.a]\ncommand = ['sh']\nnproc = 2",
            "workloads.a.nproc: a command starts its ranks itself",
        ),
        ("[workloads.a]\ncommand = []", "workloads.a.command must name a program"),
        ("[workloads.a]\nscript = 'x.py'\nenv = {A = [1]}", "workloads.a.env must be a table of "),
        ("[workloads.a]\nscript = 'x.py'\nenv = {'A=B' = '1'}", "workloads.a.env has 'A=B', which"),
        ("[workloads.a]\nscript = 'x.py'\noptions = {lr = []}", "workloads.a.options has no plain"),
        ("[workloads.a]\nscript = 'x.py'\noptions = {lr = nan}", "options has lr = nan: give a fi"),
        ("[workloads.a]\nscript = 'x.py'\noptions = {'-x' = 1}", "has '-x': an option's name has"),
        ("[workloads.a]\nscript = 'x.py'\nmodule = 'x'", "workloads.a needs one of script, module"),
        ("[workloads.a]\nsummary = 'x'", "workloads.a needs one of script, module and command"),
        ("[workloads.'a/b.py']\nscript = 'x.py'", "workloads.a/b.py: a name has at most 40 letter"),
        ("[workloads]\na = 1", "workloads.a must be a table: write [workloads.a]"),
        ("workloads = 1", "workloads must be a table: write [workloads] on a line of its own"),
        ("thresholds = 1", "thresholds must be a table: write [thresholds] on a line of its own"),
        ("\n\na = ", "line 3: not valid TOML: Invalid value"),
        ("a = 1\nb = 'open", "line 2: not valid TOML: "),
        (b"a = 1\nb = '\xff'", "line 2: not UTF-8: save the file as UTF-8"),
        ("a = " + "[" * 100_000, "nested too deeply: not read"),
        ("a = " + "9" * 5_000, "line 1: not valid TOML: "),
        ("#" * (1 << 20) + "\n", "larger than 1 MiB, which no configuration is: not read"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(
    here: Path, text: str | bytes, wanted: str
) -> None:
    # given
    file = write(here, text)
    # when
    config = load_config(here)
    # then
    problem = only_problem(config)
    assert problem.startswith(f"{file}: ")
    assert wanted in problem
    assert config.workloads == ()


def test_one_mistake_leaves_the_other_workloads(here: Path) -> None:
    write(here, "[workloads.a]\nx = 1\n[workloads.b]\nscript = 'b.py'\n")
    config = load_config(here)
    assert [workload.name for workload in config.workloads] == ["b"]
    assert "workloads.a has no setting 'x'" in only_problem(config)


def test_a_problem_never_carries_an_escape(here: Path) -> None:
    write(here, '["\\u001b]0;title\\u0007"]\n')
    problem = only_problem(load_config(here))
    assert problem.isprintable()
    assert r"\x1b]0;title" in problem


def test_a_file_takes_no_reserved_name(here: Path) -> None:
    write(here, "[workloads.built-in]\nscript = 'evil.py'\n")
    config = load_config(here, {"built-in"})
    assert config.workloads == ()
    assert "built-in is a built-in workload: give yours another name" in only_problem(config)


def test_the_current_directory_takes_no_name_of_the_users_own_file(here: Path) -> None:
    # given
    own = write_own(here, "[workloads.a]\nscript = 'good.py'\n")
    write(here, "[workloads.a]\nscript = 'evil.py'\n[workloads.b]\nscript = 'b.py'\n")
    # when
    config = load_config(here)
    # then
    assert [(w.name, w.file, w.trusted) for w in config.workloads] == [
        ("a", own, True),
        ("b", here / "torchtop.toml", False),
    ]
    assert f"a is in {own} already: rename one of them" in only_problem(config)


@pytest.mark.fault(30, "a torchtop.toml that others can write", "refused")
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_refused(here: Path, mode: int) -> None:
    # given
    file = write(here, FULL)
    file.chmod(mode)
    # when
    config = load_config(here)
    # then
    assert config.workloads == ()
    assert f"others can write it, so it is not read: chmod go-w {file}" in only_problem(config)


@pytest.mark.fault(30, "another user's torchtop.toml", "refused")
def test_a_file_of_another_user_is_refused(here: Path) -> None:
    # given
    if os.geteuid() == 0:
        os.chown(write(here, FULL), 65534, -1)
    else:
        (here / "torchtop.toml").symlink_to("/etc/passwd")
    # when
    config = load_config(here)
    # then
    assert config.workloads == ()
    assert "belongs to another user" in only_problem(config)


def test_a_fifo_does_not_hang(here: Path) -> None:
    os.mkfifo(here / "torchtop.toml", 0o600)
    assert "not a regular file: not read" in only_problem(load_config(here))


def test_a_link_to_itself_is_told(here: Path) -> None:
    (here / "torchtop.toml").symlink_to("torchtop.toml")
    assert "cannot be read" in only_problem(load_config(here))


def test_keys_count_only_in_the_users_own_file(here: Path) -> None:
    write_own(here, "[keys]\nquit = 'f10'\nstop = 3\n")
    write(here, "[keys]\nquit = '1'\n")
    config = load_config(here)
    assert config.keys == {"quit": "f10"}
    assert "keys.stop must be a key in quotes" in config.problems[0]
    assert "[keys] counts only in your own configuration: move it to" in config.problems[1]


def test_thresholds_pass_through_and_the_nearer_file_counts(here: Path) -> None:
    write_own(here, "[thresholds]\nwarn = 0.1\nnote = 0.05\n")
    write(here, "[thresholds]\nwarn = 0.2\n")
    assert load_config(here).thresholds == {"warn": 0.2, "note": 0.05}


def test_the_users_own_workloads_need_no_consent(here: Path, tmp_path: Path) -> None:
    write_own(here, FULL)
    assert not needs_consent(load_config(here).workloads[0], tmp_path / "home")


def test_consent_is_kept_and_private(here: Path, tmp_path: Path) -> None:
    # given
    home = tmp_path / "home"
    write(here, FULL)
    (workload,) = load_config(here).workloads
    assert needs_consent(workload, home)
    # when
    give_consent(workload, home)
    # then
    assert not needs_consent(load_config(here).workloads[0], home)
    assert stat.S_IMODE((home / "trusted.json").stat().st_mode) == 0o600
    assert len(json.loads((home / "trusted.json").read_text())["sha256"]) == 1


@pytest.mark.fault(30, "a hostile torchtop.toml", "its command is shown, and asked for")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sub/train.py", "sub/other.py"),
        ("--epochs", "--exec"),
        ('DATA = "/data set"', 'LD_PRELOAD = "/data set"'),
        ('cwd = "sub"', 'cwd = "."'),
        ("lr = 0.1", "lr = 0.2"),
        ('gpus = "all"', "gpus = 1"),
    ],
)
def test_a_changed_workload_asks_again(here: Path, tmp_path: Path, old: str, new: str) -> None:
    # given
    write(here, FULL)
    give_consent(load_config(here).workloads[0], tmp_path / "home")
    # when
    assert old in FULL
    write(here, FULL.replace(old, new))
    # then
    assert needs_consent(load_config(here).workloads[0], tmp_path / "home")


def test_the_same_text_elsewhere_asks_again(here: Path, tmp_path: Path) -> None:
    write(here, FULL)
    give_consent(load_config(here).workloads[0], tmp_path / "home")
    write(here / "copy", FULL)
    assert needs_consent(load_config(here / "copy").workloads[0], tmp_path / "home")


def test_a_second_consent_keeps_the_first(here: Path, tmp_path: Path) -> None:
    write(here, FULL + "[workloads.other]\nscript = 'o.py'\n")
    workloads = load_config(here).workloads
    for workload in workloads:
        give_consent(workload, tmp_path / "home")
    assert not any(needs_consent(workload, tmp_path / "home") for workload in workloads)


@pytest.mark.parametrize("content", ["", "[]", '{"sha256": 3}', "\0"])
def test_a_damaged_record_of_consent_asks_again(here: Path, tmp_path: Path, content: str) -> None:
    write(here, FULL)
    (workload,) = load_config(here).workloads
    (tmp_path / "trusted.json").write_text(content)
    assert needs_consent(workload, tmp_path)
    give_consent(workload, tmp_path)
    assert not needs_consent(workload, tmp_path)
