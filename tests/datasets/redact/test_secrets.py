from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from flywheel.datasets.redact import Redacted
from flywheel.datasets.redact.secrets import VENDORS

Clean = Callable[..., str]
Talk = Callable[..., Redacted]


@pytest.fixture
def vendors() -> dict[str, tuple[Callable[[random.Random], str], ...]]:
    """Ways to make each vendor's secrets, in the form that the vendor documents."""
    from personal.vendors import SECRETS

    return SECRETS


def test_secrets_of_every_vendor_become_placeholders_wherever_they_stand(talk: Talk, vendors: object) -> None:
    from personal.vendors import SECRETS, secret_part

    rng = random.Random(3)
    assert len(SECRETS) >= 50
    for vendor, makers in SECRETS.items():
        for make in makers * 5:
            made = make(rng)
            part = secret_part(vendor, made)
            for text in (made, f"key={made} ", f"the key is {made}", f"<{made}>"):
                done = talk(text)
                assert done.messages[0]["content"] == text.replace(part, f"[SECRET:{vendor}]"), vendor
                assert done.counts == {f"secret:{vendor}": 1}


def test_more_than_twenty_five_vendors_are_known() -> None:
    assert len(VENDORS) > 50


def test_a_placeholder_is_no_secret(clean: Clean) -> None:
    for vendor in sorted(VENDORS):
        for text in (f"[SECRET:{vendor}]", f"redis://:[SECRET:{vendor}]@cache/0", f"DD_API_KEY=[SECRET:{vendor}]"):
            assert clean(text) == text


def test_settings_name_the_secrets_of_vendors_whose_keys_have_no_prefix(clean: Clean) -> None:
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzz8Q4Lkkx1"
    assert clean(f"AWS_SECRET_ACCESS_KEY={key}") == "AWS_SECRET_ACCESS_KEY=[SECRET:aws]"
    assert clean(f'{{"secretAccessKey": "{key}"}}') == '{"secretAccessKey": "[SECRET:aws]"}'
    assert clean("TWILIO_AUTH_TOKEN: " + "a1" * 16) == "TWILIO_AUTH_TOKEN: [SECRET:twilio]"
    assert clean("CLOUDFLARE_API_TOKEN='" + "aB3_" * 10 + "'") == "CLOUDFLARE_API_TOKEN='[SECRET:cloudflare]'"
    assert clean("Authorization: Bearer " + "q1W2e3R4" * 4) == "Authorization: Bearer [SECRET:http_auth]"


def test_passwords_in_addresses_go_and_the_rest_of_the_address_stays(clean: Clean) -> None:
    assert (
        clean("postgres://app:p@ss:w0rd!@db.acme.io:5432/x") == "postgres://app:[SECRET:url_password]@db.acme.io:5432/x"
    )
    assert clean("amqp://:guest@mq/") == "amqp://:[SECRET:url_password]@mq/"
    for text in ("postgres://$USER:$PASS@db/x", "http://host:8080/@scope", "f'redis://:{password}@db'", "x://u:***@h"):
        assert clean(text) == text


def test_private_keys_go_whole_also_cut_off_or_in_json(clean: Clean) -> None:
    body = "\n".join(["MIIEvQ" + "abcDEF12/+" * 5] * 4)
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    assert clean(f"a\n{key}\nb") == "a\n[SECRET:private_key]\nb"
    assert clean(f"a\n{key[:150]}") == "a\n[SECRET:private_key]"
    escaped = key.replace("\n", "\\n")
    assert clean(f'{{"private_key": "{escaped}", "n": 1}}') == '{"private_key": "[SECRET:private_key]", "n": 1}'
    assert clean("-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----").startswith("-----BEGIN PUBLIC")


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn and task-abcdefghijklmnopqrstuvwxyz012345",
        "AKIA is a prefix, ghp_ too, and xoxb-",
        "eyJ is how a token begins",
        "sha256:" + "0123456789abcdef" * 4,
        "npm_config_registry=https://registry.example.com",
        "SKU " + "12ab" * 4,
        "secret_santa and key-value stores",
    ],
)
def test_names_and_prefixes_alone_are_no_secrets(text: str, clean: Clean) -> None:
    assert clean(text) == text
