"""What is hidden of a command line before it is passed on."""

from __future__ import annotations

import pytest

from torchtop.session import redact


@pytest.mark.fault(30, "secrets in argv", "redacted")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--api-key", "abc", "--lr", "1"], ["--api-key", "***", "--lr", "1"]),
        (["--api_key=abc"], ["--api_key=***"]),
        (["--hf-token", "abc"], ["--hf-token", "***"]),
        (["WANDB_API_KEY=abc"], ["WANDB_API_KEY=***"]),
        (["trainer.logger.password=abc"], ["trainer.logger.password=***"]),
        (["--private-key", "abc"], ["--private-key", "***"]),
        (["--auth=abc", "--bearer", "x"], ["--auth=***", "--bearer", "***"]),
        (["hf_abcdefghijklmnopqrst"], ["***"]),
        (["--x=sk-proj-aB_cDefGhijKlmnop"], ["--x=***"]),
        (["ghp_abcdefghijklmnop1234"], ["***"]),
        (["--db", "postgres://ana:pw@db/x"], ["--db", "postgres://***@db/x"]),
        (["https://deadbeef@github.com/x"], ["https://***@github.com/x"]),
        (["eyJhbGciOiJI.eyJzdWIiOi.c2ln"], ["***"]),
    ],
)
def test_secrets_are_hidden(given: list[str], kept: list[str]) -> None:
    assert redact.argv(given) == kept


@pytest.mark.parametrize(
    "word",
    [
        "--max-tokens",
        "--tokenizer=gpt2",
        "--tokens-per-batch=512",
        "--author=ana",
        "task-distributed-training-run",
        "disk-aaaaaaaaaaaaaaaaaaaaaaaa",
        "--keypoints=17",
        "https://example.org/a:b/c",
        "user@example.org",
        "--monkey=1",
    ],
)
def test_what_only_resembles_a_secret_is_kept(word: str) -> None:
    assert redact.argv([word, "next"]) == [word, "next"]


def test_an_option_after_a_secret_flag_is_not_its_value() -> None:
    assert redact.argv(["--use-auth", "--lr", "1"]) == ["--use-auth", "--lr", "1"]


def test_options_are_redacted_by_name_and_by_value() -> None:
    assert redact.mapping({"batch": 8, "token": "abc", "url": "s3://a:b@c", "none": None}) == {
        "batch": 8,
        "token": "***",
        "url": "s3://***@c",
        "none": None,
    }
