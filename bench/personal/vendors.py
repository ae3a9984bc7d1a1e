"""Made-up keys and tokens in the form that each vendor documents, so that none of them stands in a file."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
URL = ALNUM + "_-"
HEX = "0123456789abcdef"


def some(rng: random.Random, alphabet: str, count: int) -> str:
    """That many characters."""
    return "".join(rng.choices(alphabet, k=count))


def _uuid(rng: random.Random) -> str:
    digits = some(rng, HEX, 32)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _jwt(rng: random.Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": str(rng.randrange(10**9)), "iat": 1516239022})
    head = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*head, some(rng, URL, 43)])


def _pem(rng: random.Random) -> str:
    name = rng.choice(("RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"))
    body = "\n".join(some(rng, ALNUM + "+/", 64) for _ in range(rng.randrange(3, 12)))
    return f"-----BEGIN {name}-----\n{body}\n-----END {name}-----"


Make = Callable[[random.Random], str]

SECRETS: dict[str, tuple[Make, ...]] = {
    "aws": (lambda r: "AKIA" + some(r, string.ascii_uppercase + "234567", 16),),
    "google": (lambda r: "AIza" + some(r, URL, 35), lambda r: "GOCSPX-" + some(r, URL, 28)),
    "azure": (lambda r: some(r, ALNUM, 3) + "8Q~" + some(r, URL, 34),),
    "openai": (
        lambda r: "sk-" + some(r, ALNUM, 48),
        lambda r: "sk-proj-" + some(r, URL, 74) + "T3BlbkFJ" + some(r, URL, 74),
    ),
    "anthropic": (lambda r: "sk-ant-api03-" + some(r, URL, 93) + "AA",),
    "openrouter": (lambda r: "sk-or-v1-" + some(r, HEX, 64),),
    "github": (
        lambda r: "gh" + r.choice("pousr") + "_" + some(r, ALNUM, 36),
        lambda r: f"github_pat_{some(r, ALNUM, 22)}_{some(r, ALNUM, 59)}",
    ),
    "gitlab": (lambda r: "glpat-" + some(r, URL, 20), lambda r: "glrt-" + some(r, URL, 20)),
    "slack": (
        lambda r: f"xoxb-{r.randrange(10**11, 10**12)}-{r.randrange(10**12, 10**13)}-{some(r, ALNUM, 24)}",
        lambda r: f"https://hooks.slack.com/services/T{some(r, ALNUM, 10)}/B{some(r, ALNUM, 10)}/{some(r, ALNUM, 24)}",
    ),
    "stripe": (lambda r: r.choice(("sk", "rk")) + "_live_" + some(r, ALNUM, 24),),
    "twilio": (lambda r: "SK" + some(r, HEX, 32),),
    "sendgrid": (lambda r: f"SG.{some(r, URL, 22)}.{some(r, URL, 43)}",),
    "mailgun": (
        lambda r: "key-" + some(r, HEX, 32),
        lambda r: f"{some(r, HEX, 32)}-{some(r, HEX, 8)}-{some(r, HEX, 8)}",
    ),
    "mailchimp": (lambda r: f"{some(r, HEX, 32)}-us{r.randrange(1, 22)}",),
    "huggingface": (lambda r: "hf_" + some(r, string.ascii_letters, 34),),
    "npm": (lambda r: "npm_" + some(r, ALNUM, 36),),
    "pypi": (lambda r: "pypi-AgEIcHlwaS5vcmc" + some(r, URL, 70),),
    "rubygems": (lambda r: "rubygems_" + some(r, HEX, 48),),
    "docker": (lambda r: "dckr_pat_" + some(r, URL, 27),),
    "digitalocean": (lambda r: f"do{r.choice('opr')}_v1_{some(r, HEX, 64)}",),
    "cloudflare": (lambda r: f"v1.0-{some(r, HEX, 24)}-{some(r, HEX, 146)}",),
    "heroku": (lambda r: "HRKU-AA" + some(r, URL, 58),),
    "square": (lambda r: "sq0atp-" + some(r, URL, 22), lambda r: "EAAA" + some(r, URL, 60)),
    "shopify": (lambda r: f"shp{r.choice(('at', 'ca', 'pa', 'ss'))}_{some(r, HEX, 32)}",),
    "databricks": (lambda r: "dapi" + some(r, HEX, 32),),
    "telegram": (lambda r: f"{r.randrange(10**9, 10**10)}:AA{some(r, URL, 33)}",),
    "discord": (lambda r: f"M{some(r, ALNUM, 23)}.{some(r, URL, 6)}.{some(r, URL, 38)}",),
    "atlassian": (
        lambda r: f"ATATT3xFfGF0{some(r, URL, 171)}={some(r, HEX.upper(), 8)}",
        lambda r: "ATBB" + some(r, ALNUM, 32),
    ),
    "linear": (lambda r: "lin_api_" + some(r, ALNUM, 40),),
    "notion": (lambda r: "ntn_" + some(r, ALNUM, 46), lambda r: "secret_" + some(r, ALNUM, 43)),
    "postman": (lambda r: f"PMAK-{some(r, HEX, 24)}-{some(r, HEX, 34)}",),
    "airtable": (lambda r: f"pat{some(r, ALNUM, 14)}.{some(r, HEX, 64)}",),
    "figma": (lambda r: "figd_" + some(r, URL, 40),),
    "newrelic": (
        lambda r: "NRAK-" + some(r, string.ascii_uppercase + string.digits, 27),
        lambda r: some(r, HEX, 36) + "NRAL",
    ),
    "datadog": (lambda r: "DD_API_KEY=" + some(r, HEX, 32),),
    "sentry": (lambda r: "sntryu_" + some(r, HEX, 64),),
    "grafana": (lambda r: f"glsa_{some(r, ALNUM, 32)}_{some(r, HEX, 8)}",),
    "vault": (lambda r: "hvs." + some(r, URL, 95),),
    "terraform": (lambda r: f"{some(r, ALNUM, 14)}.atlasv1.{some(r, URL, 67)}",),
    "doppler": (lambda r: "dp.pt." + some(r, ALNUM, 43),),
    "pulumi": (lambda r: "pul-" + some(r, HEX, 40),),
    "planetscale": (lambda r: "pscale_tkn_" + some(r, URL, 43),),
    "supabase": (lambda r: "sbp_" + some(r, HEX, 40),),
    "tailscale": (lambda r: f"tskey-auth-{some(r, ALNUM, 12)}-{some(r, ALNUM, 32)}",),
    "groq": (lambda r: "gsk_" + some(r, ALNUM, 52),),
    "xai": (lambda r: "xai-" + some(r, ALNUM, 80),),
    "perplexity": (lambda r: "pplx-" + some(r, ALNUM, 48),),
    "replicate": (lambda r: "r8_" + some(r, ALNUM, 37),),
    "nvidia": (lambda r: "nvapi-" + some(r, URL, 64),),
    "langsmith": (lambda r: f"lsv2_pt_{some(r, HEX, 32)}_{some(r, HEX, 10)}",),
    "plaid": (lambda r: "access-production-" + _uuid(r),),
    "jwt": (_jwt,),
    "private_key": (_pem,),
    "url_password": (
        lambda r: f"postgres://app:{some(r, ALNUM + '!$%&*+', 14)}@db.internal:5432/prod",
        lambda r: f"redis://:{some(r, ALNUM, 20)}@cache:6379/0",
    ),
}
"""Ways to make a secret, by vendor. Of the last two words of a setting or an address, only a part is the secret."""


def secret_part(vendor: str, made: str) -> str:
    """What of a made text is the secret itself."""
    if vendor == "datadog":
        return made.partition("=")[2]
    if vendor == "url_password":
        return made.partition("://")[2].partition(":")[2].rpartition("@")[0]
    return made
