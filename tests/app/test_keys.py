"""The table of keys, and the page that is made from it."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.binding import Binding

from torchtop.app.browser.screen import Browser
from torchtop.app.keys import BINDINGS, key_name
from torchtop.app.main import TorchtopApp
from torchtop.app.screens.ask import Ask
from torchtop.app.screens.lines import Lines, help_lines
from torchtop.app.screens.main import MainScreen
from torchtop.app.screens.picker import Picker
from torchtop.app.screens.prompt import Prompt
from torchtop.app.sweep.main import SweepApp
from torchtop.app.text import plain

DESIGNED = "1 2 3 4 5 6 7 8 9 w s x r S o l z space [ ] tab / + - question_mark ctrl+p q ctrl+c h e"

HOLDERS = (TorchtopApp, MainScreen, SweepApp, Browser, Ask, Lines, Picker, Prompt)


@pytest.mark.parametrize("holder", HOLDERS)
def test_every_binding_can_be_named_explained_and_grouped(holder: type) -> None:
    for binding in holder.__dict__["BINDINGS"]:
        assert isinstance(binding, Binding)
        assert binding.id and binding.id.startswith("torchtop."), binding
        assert binding.group is not None, binding
        assert binding.tooltip or binding.key == "=", binding


def test_the_keys_of_the_design_are_bound() -> None:
    assert set(DESIGNED.split()) <= {binding.key for binding in BINDINGS}


def test_no_key_is_bound_twice() -> None:
    assert max(Counter(binding.key for binding in BINDINGS).values()) == 1


def test_one_id_has_one_action() -> None:
    actions: dict[str | None, set[str]] = {}
    for binding in BINDINGS:
        actions.setdefault(binding.id, set()).add(binding.action)
    assert {ident: found for ident, found in actions.items() if len(found) > 1} == {}


def test_help_has_every_group_and_joins_keys_of_one_meaning() -> None:
    page = [plain(row).rstrip() for row in help_lines(BINDINGS)]
    assert [line for line in page if line in ("session", "display", "program")] == [
        "session",
        "display",
        "program",
    ]
    assert any(line.startswith("1-9 ") for line in page)
    assert any(line.startswith("q Ctrl+C ") for line in page)
    assert any(line.startswith("Tab Shift+Tab ") for line in page)
    assert any(line.startswith("Shift+Left Right ") for line in page)  # and nothing cut off


def test_keys_are_named_as_on_the_keyboard() -> None:
    assert key_name("pagedown") == "PgDn"
    assert key_name("x") == "x"
    assert (key_name("enter"), key_name("backspace")) == ("Enter", "Backspace")
