"""What looks like personal data or a secret and is none: each with random digits, so that some fit a checksum."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

from personal.vendors import ALNUM, HEX, some


def _digits(rng: random.Random, count: int) -> str:
    return some(rng, "0123456789", count)


def _date(rng: random.Random) -> str:
    day, month, year = rng.randrange(1, 29), rng.randrange(1, 13), rng.randrange(1990, 2030)
    return rng.choice((f"{year}-{month:02}-{day:02}", f"{day:02}.{month:02}.{year}", f"{month:02}/{day:02}/{year}"))


def _octets(rng: random.Random, most: int = 20) -> str:
    return ".".join(str(rng.randrange(most)) for _ in range(4))


def _isbn(rng: random.Random) -> str:
    digits = _digits(rng, 10)
    return rng.choice(
        (f"978-{digits[0]}-{digits[1:3]}-{digits[3:9]}-{digits[9]}", f"978{digits}", f"0-306-{digits[:5]}-{digits[5]}")
    )


def _broken_card(rng: random.Random) -> str:
    """Sixteen digits whose last is not the one that Luhn wants."""
    body = "4" + _digits(rng, 14)
    total = sum(int(d) if i % 2 else sum(divmod(2 * int(d), 10)) for i, d in enumerate(body))
    return body + str((11 - total % 10) % 10)


LOOKALIKES: tuple[Callable[[random.Random], str], ...] = (
    lambda r: f"Where is my order {_digits(r, r.choice((8, 9, 10, 12, 16)))}?",
    lambda r: f"order #{_digits(r, 3)}-{_digits(r, 7)}-{_digits(r, 7)} has not arrived",
    lambda r: f"the tracking number is {_digits(r, r.choice((10, 12, 15, 20, 22)))}",
    lambda r: "tracking " + " ".join(["9400", *(_digits(r, 4) for _ in range(4)), _digits(r, 2)]),
    lambda r: f"1Z{some(r, ALNUM.upper(), 6)}{_digits(r, 10)} is still in transit",
    lambda r: f"my customer number is {_digits(r, r.choice((7, 9, 10)))}",
    lambda r: f"Invoice No. {_digits(r, 4)}-{_digits(r, 6)} of {_date(r)}",
    lambda r: f"ticket {_digits(r, 7)} was closed on {_date(r)}",
    lambda r: f"created_at={r.randrange(16 * 10**8, 18 * 10**8)} updated_at={r.randrange(16 * 10**11, 18 * 10**11)}",
    lambda r: f"it happened on {_date(r)} at {r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}",
    lambda r: f"between {_date(r)} and {_date(r)}",
    lambda r: f"upgraded from version {_octets(r)} to {_octets(r)}",
    lambda r: f"pip install thing=={_octets(r)}",
    lambda r: f"v{_octets(r)} breaks the import, see section 1.2.3.4",
    lambda r: f"Mozilla/5.0 (X11; Linux x86_64) Chrome/{r.randrange(90, 140)}.0.0.0 Safari/537.36",
    lambda r: f"they charged {r.randrange(10**3, 10**6)}.{r.randrange(100):02} EUR instead of 1.234.567,89",
    lambda r: f"total {r.randrange(1, 999)},{_digits(r, 3)},{_digits(r, 3)} rows in {r.random():.12f} s",
    lambda r: f"population 12 345 678, of which {r.randrange(1, 9)} {_digits(r, 3)} {_digits(r, 3)} moved",
    lambda r: f"trace {uuid.UUID(int=r.getrandbits(128), version=4)} failed",
    lambda r: f"commit {some(r, HEX, 40)} broke it, {some(r, HEX, 7)} was fine",
    lambda r: f"sha256:{some(r, HEX, 64)}",
    lambda r: f"md5 {some(r, HEX, 32)} of the archive",
    lambda r: f"tx 0x{some(r, HEX, 64)} is pending",
    lambda r: f"ISBN {_isbn(r)}",
    lambda r: f"EAN {_digits(r, 13)}, serial number {_digits(r, 4)}-{_digits(r, 4)}-{_digits(r, 4)}",
    lambda r: f"IMEI 35{_digits(r, 13)}",
    lambda r: f"the test card {_broken_card(r)} is declined",
    lambda r: f"GB{r.randrange(10, 99)} NWBK {_digits(r, 4)} is cut off",
    lambda r: f"latitude 52.{_digits(r, 8)}, longitude 13.{_digits(r, 8)}",
    lambda r: "mac " + ":".join(some(r, HEX, 2) for _ in range(6)),
    lambda r: "from std::vector<int> to ab::cd in 12:30:45.123456",
    lambda r: "git clone git@github.com:acme/tool.git && npm install lodash@4.17.21",
    lambda r: f"ask @{some(r, ALNUM.lower(), 8)} or @support about icon@2x.png",
    lambda r: f"port {r.randrange(1024, 65535)} pid {r.randrange(10**6)} took {r.randrange(10**7)} us",
    lambda r: f"part no. {_digits(r, 5)}-{_digits(r, 5)}, model {some(r, ALNUM.upper(), 4)}-{_digits(r, 6)}",
    lambda r: f"x = {_digits(r, 8)} * 3.{_digits(r, 15)} + 1e{r.randrange(10)}",
    lambda r: f"SELECT * FROM orders WHERE id = {_digits(r, 10)} AND ref = '{_digits(r, 16)}'",
    lambda r: f'{{"order_id": {_digits(r, 12).lstrip("0") or 1}, "sku": "{_digits(r, 9)}", "qty": 2}}',
    lambda r: f"Bestellnummer {_digits(r, 10)}, Sendung {_digits(r, 12)}",
    lambda r: f"commande {_digits(r, 9)} du {_date(r)}, colis {_digits(r, 13)}",
    lambda r: f"pedido {_digits(r, 9)}, factura {_digits(r, 4)}/{_digits(r, 5)}",
    lambda r: f"ordine {_digits(r, 9)} del {_date(r)}, spedizione {_digits(r, 11)}",
    lambda r: f"bestelling {_digits(r, 9)}, factuur {_digits(r, 8)}",
    lambda r: f"zamówienie {_digits(r, 11)} i faktura {_digits(r, 10)}",
    lambda r: f"pedido {_digits(r, 11)}, nota fiscal {_digits(r, 9)}",
    lambda r: f"order {_digits(r, 10)} och faktura {_digits(r, 8)}",
    lambda r: f"sk-learn, task-{some(r, ALNUM, 24)} and hf_hub are no keys; key-value {some(r, HEX, 12)}",
    lambda r: "set DATABASE_URL to postgres://$USER:$PASSWORD@localhost/db or https://host:8080/a@b",
    lambda r: f"the base64 is {some(r, ALNUM, 60)}==",
)
