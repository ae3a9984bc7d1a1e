"""The page itself: one document without data, which its headers allow to do nothing but what it must."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import flywheel.gateway
from flywheel.cli.review_sitting import BATCH, CHOICE_KEYS, MOST
from flywheel.gateway.review_read import QUEUE_LIMIT
from flywheel.labels.choices import MOST_CHOICES

PAGES = Path(flywheel.gateway.__file__).parent / "pages"


@pytest.fixture(scope="module")
def http(live: Any) -> Any:
    with live.http() as client:
        yield client


@pytest.fixture
def page(http: httpx.Client) -> httpx.Response:
    answer = http.get("/review?task=support_router")
    assert answer.status_code == 200
    return answer


def test_the_page_is_one_document_without_foreign_parts(page: httpx.Response) -> None:
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "{{" not in page.text, "every part is filled in"
    assert not re.search(r"https?://|@import|url\(|src=|<link(?! rel=\"icon\" href=\"data:,\")", page.text)
    assert not re.search(r"<[^>]+\son\w+\s*=", page.text), "no handler stands in the markup"
    assert not re.search(r"\sstyle=", page.text)


def test_only_the_pages_own_script_and_style_may_run_and_nobody_may_frame_it(page: httpx.Response) -> None:
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    nonces = re.findall(r"<(?:script|style) nonce=\"([\w-]{16,})\">", page.text)
    assert len(nonces) == 2 == len(re.findall(r"<(?:script|style)\b", page.text)) and len(set(nonces)) == 1
    assert policy["script-src"] == policy["style-src"] == f"'nonce-{nonces[0]}'"
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    wanted = {
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "x-frame-options": "DENY",
        "x-content-type-options": "nosniff",
    }
    assert wanted.items() <= dict(page.headers).items()


def test_each_answer_has_a_nonce_of_its_own(http: httpx.Client) -> None:
    assert len({http.get("/review").headers["content-security-policy"] for _ in range(3)}) == 3


def test_the_items_are_kept_by_no_cache(http: httpx.Client) -> None:
    answer = http.get("/review/items", params={"task": "support_router", "author": "ann"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_says_the_same_to_everybody_whatever_was_asked(http: httpx.Client) -> None:
    def text(path: str) -> str:
        return re.sub(r"nonce=\"[\w-]+\"", "", http.get(path).text)

    assert text("/review") == text("/review?task=%3Cscript%3E") == text("/review?task=support_router")


def test_the_script_makes_no_markup_of_text() -> None:
    script = "".join(path.read_text() for path in PAGES.glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", script)


def test_the_page_and_the_terminal_have_the_same_keys_and_batches() -> None:
    page, sitting = (PAGES / "review.js").read_text(), (PAGES / "review_sitting.js").read_text()
    assert f'[..."{CHOICE_KEYS}"]' in page
    assert f"BATCH = {BATCH};" in sitting and f"MOST = {MOST};" in sitting and MOST == QUEUE_LIMIT
    assert len(CHOICE_KEYS) == len(set(CHOICE_KEYS)) == MOST_CHOICES
    assert not set(CHOICE_KEYS) & set("ynesuq+"), "no choice takes a command's key"
