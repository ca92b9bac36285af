"""Secrets in a server's words: whatever it echoes, and however it cuts it off."""

import pytest

from redlock_async._rules.redaction import REMEMBERED, Redactor, scrub

SECRET = "p@ss word-9/é"  # noqa: S105 - looked for in every text

ECHOES = {
    "Redis 5": "ERR unknown command `AUTH`, with args beginning with: `jo`, `{}`, ",
    "Redis 7": "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'jo' '{}' ",
    "a proxy": "ERR unsupported: AUTH jo {}",
    "raw": "ERR bad request *3\\r\\n$4\\r\\nAUTH\\r\\n$2\\r\\njo\\r\\n$13\\r\\n{}\\r\\n",
    "alone": "{}",
    "first": "{} is not a password",
    "twice": "ERR {} {}",
    "in a word": "ERR redis://jo:{}@host",
}


@pytest.mark.parametrize("how", ECHOES)
@pytest.mark.parametrize("form", [str, str.upper, str.lower], ids=["as it is", "upper", "lower"])
def test_an_echoed_secret_is_masked(how, form):
    """In any case of letters."""
    text = Redactor([SECRET])(ECHOES[how].replace("{}", form(SECRET)))
    assert SECRET.lower() not in text.lower()
    assert "word-9" not in text.lower()
    assert "***" in text or "args" not in text


@pytest.mark.parametrize("length", range(4, 16))
@pytest.mark.parametrize("end", ["", "'", " ", "...", '"'])
def test_a_secret_that_is_cut_off_is_masked(length, end):
    """Redis shows at most 128 bytes of the arguments."""
    assert (
        Redactor(["0123456789abcdef"])(f"ERR bad AUTH '{'0123456789abcdef'[:length]}{end}") == f"ERR bad AUTH '***{end}"
    )


def test_arguments_are_never_quoted():
    """Whether they are secret or not: by what the server says, not by what we know."""
    text = Redactor()("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'jo' 'unknown' ")
    assert text == "ERR unknown command 'HELLO'"


@pytest.mark.parametrize(
    "text",
    [
        "NOPERM User jo has no permissions to run the 'client|id' command",
        "ERR Error running script (call to f_1): @user_script:3: running",
        "",
    ],
)
@pytest.mark.parametrize("secret", ["runner99", "a", "", None, "NOPE-not", "x" * 5000])
def test_other_text_stays_as_it_is(text, secret):
    """A word that begins like a secret is no secret, and its code must stay readable."""
    assert Redactor([secret])(text) == text


def test_a_short_secret_is_masked_where_it_stands_alone():
    """Otherwise nothing would be left of a message."""
    assert Redactor(["a"])("ERR bad AUTH 'a' at all") == "ERR bad AUTH '***' at all"


def test_secrets_are_text_or_bytes_and_the_newest_are_kept():
    """A provider returns new ones again and again."""
    redact = Redactor([b"in-bytes"])
    assert redact("ERR in-bytes") == "ERR ***"
    for number in range(2 * REMEMBERED):
        redact.add(f"token-{number:03}")
        redact.add(f"token-{number:03}")
    assert redact(f"token-{2 * REMEMBERED - 1:03}") == "***"
    assert redact("ERR in-bytes") == "ERR in-bytes"
    assert "token" not in repr(redact)


def test_a_secret_that_cannot_be_printed_is_masked_as_it_is_shown():
    """Messages are made printable before they are shown, and some servers do it before they send them."""
    assert Redactor(["pass\nword"])("ERR AUTH pass?word") == "ERR AUTH ***"
    assert Redactor(["pass\nword"])("ERR AUTH pass\nword") == "ERR AUTH ***"


def test_a_long_text_is_cut():
    """Before it is searched."""
    assert len(Redactor([SECRET])("x" * 10**6)) == 1000


def test_the_message_of_a_cause_is_scrubbed():
    """Only its text."""
    error = ValueError(f"no {SECRET}", 7)
    scrub(error, Redactor([SECRET]))
    assert error.args == ("no ***", 7)
