"""Masking of secrets, by their name or shape.

A value is masked whole; masking twice changes nothing more. What only might be a secret
is left alone unless its name says so: digests, paths, model names.
"""

import operator
import re
import string
from typing import Any

MASK = "***"

NAMES = (
    "passphrase", "pwd", "secrets", "credential", "credentials",
    "api key", "access key", "secret key", "private key", "auth key", "account key",
    "signing key", "encryption key", "license key", "authorization", "bearer", "cookie",
    "auth", "webhook", "webhook url", "connection string", "dsn", "hf token", "api token",
    "auth token", "access token", "secret token", "session token", "refresh token", "bot token",
    "hub token", "github token", "gitlab token", "wandb token", "huggingface token",
)  # fmt: skip
"""Last words of names whose values are always secrets."""
ENDINGS = ("password", "passwd", "secret", "apikey")
"""Ends of words by which a name is one of a secret: `dbpassword`."""

WEAK_NAMES = (" token", " pat", " sig")
"""Last words of names of secrets, if values look like credentials."""

SHAPES = {
    "Hugging Face": r"\bhf_[A-Za-z0-9]{16,}",
    "OpenAI, Anthropic, Stripe": r"\b(?:sk|rk|pk)[-_](?=[\w-]{0,40}\d)[\w-]{16,}",
    "GitHub": r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,})",
    "GitLab": r"\bgl(?:pat|ptt|dt|rt|cbt)-[\w-]{16,}",
    "AWS": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "Google": r"\b(?:AIza[\w-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,})",
    "Slack": r"\b(?:xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,})",
    "Slack webhook": r"\bhooks\.slack\.com/[\w/]+",
    "PyPI, npm": r"\b(?:pypi-[\w-]{16,}|npm_[A-Za-z0-9]{30,})",
    "NVIDIA, Replicate, Groq": r"\b(?:nvapi-[\w-]{16,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,})",
    "Weights & Biases": r"\bwandb_v\d_[\w-]{16,}",
    "JSON Web Token": r"\beyJ[\w-]{6,4000}\.[\w-]{6,4000}\.[\w-]*",
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*KEY-----|\Z)",
    "in a URL": r"(?<=://)[^\s/@:'\"<>]*:[^\s/@'\"<>]+(?=@)",
    "after Bearer or Basic": r"(?i:(?<=\bbearer )|(?<=\bbasic ))[\w.~+/=-]{12,}",
}  # fmt: skip
"""Looks of credentials wherever they stand, by whose they are."""

NO_SECRETS = {"", "null", "none", "true", "false", "nil", "yes", "no", "~", MASK}
"""Values, in lower case, that give nothing away."""

_SHAPE = re.compile("|".join(SHAPES.values()))
_RUN = re.compile(r"(?<![A-Za-z0-9/+_.-])[A-Za-z0-9]{24,}(?![A-Za-z0-9/+_-]|\.\w)")
_KINDS = str.maketrans(
    string.ascii_uppercase + string.ascii_lowercase + string.digits,
    "A" * 26 + "a" * 26 + "0" * 10,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_QUOTED = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
_BARE = r"[^\s\"',;&|)\]}]{1,1000}"
_PAIR = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]*[A-Za-z_])"
    r"(?P<sep>\\?[\"']?\]?[ \t]*(?:=>|:=|=)[ \t]*|\\?[\"']?\]?[ \t]*:(?P<rest>[ \t]+|(?=[\"'\w])))"
    rf"(?P<value>{_QUOTED}|(?(rest){_BARE}(?:[ \t]+(?!\#){_BARE}){{0,8}}|{_BARE}))"
)
"""`name: value`, `name = value`; unquoted behind a colon may hold blanks."""
_FLAG = re.compile(
    r"(?<![\w.-])(?P<name>--?[A-Za-z][\w.-]*)(?P<sep>(?:[\"'],)?[ \t]+)"
    rf"(?P<value>{_QUOTED}|(?!-){_BARE})"
)
"""`--name value` of a command, and `'--name', 'value'` of its word list."""
_REST = re.compile(r"[^\s\"',;&|)\]}]*")
_CREDENTIAL = re.compile(
    r"(?![+-]?[0-9.]+e[+-]?[0-9]+$)(?=\S*[0-9])(?=\S*[A-Za-z])[A-Za-z0-9_~+=%-]{6,}"
)


def is_secret(name: str, value: Any) -> bool:
    """True for a secret's name: `api_key`, `--hf-token`, `WANDB_API_KEY`."""
    text = str(value)
    if text.strip().lower() in NO_SECRETS:
        return False
    words = " ".join(["", *_WORD.findall(name)]).lower()
    if words.endswith((*ENDINGS, *(f" {secret_name}" for secret_name in NAMES))):
        return True
    is_weak = words.endswith(WEAK_NAMES) and isinstance(value, str)
    return is_weak and _CREDENTIAL.fullmatch(text) is not None


def mask_text(text: str, *, code: bool = False) -> str:
    """Mask secrets in logs, commands, diffs and sentences; in `code`, in quotes only."""
    if code:
        return _without(_PAIR, _masked_shapes(text), code=True)
    while (masked := _without(_FLAG, _without(_PAIR, _masked_shapes(text)))) != text:
        text = masked
    return text


def mask_value(value: Any, name: str = "") -> Any:
    """Mask secrets in plain data."""
    if isinstance(value, dict):
        return {key: mask_value(entry, str(key)) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mask_value(entry, name) for entry in value)
    if is_secret(name, value):
        return MASK
    if not isinstance(value, str):
        return value
    return mask_text(value.encode("utf-8", "replace").decode())  # a name of no encoding


def _masked_shapes(text: str) -> str:
    text = _RUN.sub(lambda match: MASK if _is_random(match[0]) else match[0], text)
    return _SHAPE.sub(MASK, text)


def _without(pattern: re.Pattern[str], text: str, *, code: bool = False) -> str:
    """Mask the values of secret pairs, nested ones too; in `code` only quoted ones."""
    parts, copied, at = [], 0, 0
    while match := pattern.search(text, at):
        value = match["value"]
        quote = value[0] if value[0] in "\"'" else ""
        bare = value[1:-1] if quote else value
        # An expression is no secret: `password = getpass(...)`, `os.environ[...]`.
        is_expression = not quote and (code or any(mark in value for mark in "([{<$"))
        if is_expression or not is_secret(match["name"], bare):
            at = match.start("value")
            continue
        parts += [text[copied : match.start("value")], quote, MASK, quote]
        rest = _REST.match(text, match.end()) if not quote else None
        copied = at = rest.end() if rest else match.end()
    return "".join([*parts, text[copied:]])


def _is_random(run: str) -> bool:
    """True if characters alternate as in random text.

    In names, upper case begins a word and digits end it. Digests have one case.
    """
    kinds = run.translate(_KINDS)
    if any(kinds.count(kind) < 2 for kind in "Aa0"):
        return False
    changes: int = sum(map(operator.ne, kinds, kinds[1:]))
    return changes >= 0.35 * len(run)
