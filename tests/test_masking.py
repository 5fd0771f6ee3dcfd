"""Secrets are masked by name and by shape; what is none stays as it is; twice is once."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from advisor import config as documents, masking
from advisor.masking import MASK, mask_text, mask_value

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
random_text = st.text(LETTERS, min_size=40, max_size=60)
SECRET = "q7Zp2mXw9Lr4"


SECRETS = [
    f'"api_key": "{SECRET}", "batch": 1',
    f"api_key: {SECRET}   # mine",
    f"export WANDB_API_KEY={SECRET} && python t.py",
    f"python t.py --hf-token {SECRET} --lr 1e-3",
    f"python t.py --password '{SECRET}'",
    f"  passphrase: two words {SECRET}",
    f"https://user:{SECRET}@host.example/x",
    f"s3://b/x?sig={SECRET}&y=1",
    f"Authorization: Bearer {SECRET}{SECRET}",
    f"token hf_{SECRET}{SECRET}",
    f"sk-proj-{SECRET}{SECRET}",
    "AKIAIOSFODNN7EXAMPLE",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{SECRET}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"os.environ['OPENAI_API_KEY'] = '{SECRET}'",
    f"WANDB_API_KEY={'0123456789abcdef' * 2}{SECRET}",
    f"note: token: api_key={SECRET}",
    f"password={'x' * 3000}{SECRET}",
    f"found {SECRET}kQ3{SECRET}vT8 in the log",
]


def test_a_secret_does_not_show() -> None:
    shown = [mask_text(text) for text in SECRETS]
    assert [text for text in shown if SECRET in text or MASK not in text] == []


HARMLESS = [
    "loss per token: 2.31, 1234567.5 tokens/s",
    "max_tokens=512 num_tokens: 77 token_dim=64",
    'pad_token: "<pad>", eos_token_id: 50256',
    "git 3112ecb5d9d2f0f5d35e8bf2d8b3f2c7f1a2b3c4",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "model: meta-llama/Llama-3.1-8B-Instruct",
    "/data/experiments/2024-05-01T10:22:33Z/checkpoint_000040.pth",
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "key: layer1.0.conv1.weight",
    "public_key_file: ~/.ssh/id_rsa.pub",
    "api_key: null, secret: false, password: ''",
    "@@ -1,4 +1,4 @@",
]


def test_what_is_no_secret_stays() -> None:
    assert [mask_text(text) for text in HARMLESS] == HARMLESS


@settings(deadline=None)
@given(st.floats(allow_nan=False) | st.integers())
def test_a_number_is_no_secret_whatever_stands_before_it(number) -> None:
    for text in (f"loss {number}", f"token: {number}", f"steps={number}"):
        assert mask_text(text) == text


@settings(deadline=None)
@given(st.text("0123456789abcdef", min_size=7, max_size=64))
def test_a_git_hash_is_no_secret_unless_its_name_says_so(digest) -> None:
    assert mask_text(f"commit {digest}") == f"commit {digest}"
    assert mask_value({"commit": digest}) == {"commit": digest}
    assert mask_value({"api_key": digest}) == {"api_key": MASK}


pieces = st.lists(
    st.sampled_from(
        ["password", "token", "api_key", "=", ":", " ", "--", "-", '"', "'", "***", "*", "a1b2c3d4",
         "://", "@", "\n", ",", "sk-", "hf_", "eyJ", ".", "Bearer ", "\\", "{", "]", "#", "é"]
    ) | st.text(max_size=6) | random_text,
    max_size=14,
)  # fmt: skip


@settings(deadline=None)
@given(pieces)
def test_masking_twice_is_masking_once(parts) -> None:
    text = "".join(parts)
    assert mask_text(mask_text(text)) == mask_text(text)


def test_random_strings_are_masked() -> None:
    """Forty letters and digits, drawn by chance, are hardly ever taken for a name."""
    chance = random.Random(0)
    drawn = ["".join(chance.choices(LETTERS, k=40)) for _ in range(500)]
    assert sum(mask_text(f"it is {text}.") == f"it is {MASK}." for text in drawn) >= 495


def test_a_command_and_an_environment_are_masked_by_name() -> None:
    command = "python t.py --api-key {0} --batch 8 --token={0}"
    assert mask_text(command.format(SECRET)) == command.format(MASK)
    assert mask_value({"HF_TOKEN": SECRET, "HOME": "/root"}) == {"HF_TOKEN": MASK, "HOME": "/root"}


def test_code_is_masked_only_inside_quotes() -> None:
    """A patch must apply: names and expressions are no secrets."""
    code = "+    api_key=args.api_key, token=tokenizer, password=getpass()\n"
    assert mask_text(code, code=True) == code
    assert SECRET not in mask_text(f"login(password='{SECRET}')", code=True)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", '{\n  "batch": 1,\n  "api_key": "%s",\n  "credentials": {"a": "%s"}\n}\n'),
        ("yaml", "batch: 1\napi_key: %s\ncredentials:\n  a: %s\n"),
        ("toml", 'batch = 1\napi_key = "%s"\ncredentials = { a = "%s" }\n'),
    ],
)
def test_a_diff_shows_no_secret_on_a_line_beside_the_change(form, text) -> None:
    """Nor one that only the name of the table it is in gives away."""
    before = documents.parse((text % (SECRET, "open sesame")).encode(), form, "c")
    after = documents.parse(before.with_values({"batch": 8}), form, "c")
    shown = documents.masked_diff(before, after, "c")
    assert SECRET not in shown
    assert "sesame" not in shown
    assert masking.MASK in shown
    assert "8" in shown
