"""What the words around a number say that it is, in the languages of the national ids that are known here."""

from __future__ import annotations

import re
from collections.abc import Sequence

STEM = 5
"""Words are looked up whole, and by their first five letters: Polish *telefonem* is a *telef*."""

_TOPICS = {
    "phone": (
        "phone tel tél telef teléf télép telep mobil mobile móvil movil cell cellu celul celular handy portable porta"
        " komór komor kom gsm fax sms call calls called calling dial ring ringa ringe rufen anruf ruf rückr errei"
        " reach whats whatsapp appel rappe joind llama lláma llame chiam recap bel bellen zadzw dzwoń dzwon ligue"
        " ligar telem hotli linha zap signal viber contact contacts contacto contato contacta contactez"
        " contatto contatti kontakt"
    ),
    "card": (
        "card cards carte tarje karte karta karty kartą kart karcie kort kortn kaart carta cartã cartõ cartao credi"
        " kredi visa maest debit pay paid payé payer pagad pagat pagué pague bezah betaa betal zapła zapla charg cb"
    ),
    "ssn": "ssn socia",
    "sin": "sin nas socia insur",
    "bsn": "bsn burge sofin",
    "pesel": "pesel",
    "tax": "tax tin idnr steue itin",
    "aadhaar": "aadha uidai uid",
    "cpf": "cpf",
    "personnummer": "perso pnr persn",
    "solana": "solan sol phant",
    "ip": "ip ips ipv addre host hosts serve ping subne gatew",
    "version": "versi relea build firmw secti chapt kapit wersj versã",
    "other": (
        "order invoi track ticke refer ref isbn issn sku seria serie trans batch artic produ item parce shipm packa"
        " barco ean upc gtin imei vin times epoch unix commi hash uuid port pid error custo membe licen rma quote"
        " coupo vouch accou case model total amoun price usd eur gbp loyal meter part"
        " beste rechn sendu paket kunde artik auftr vorga"
        " comma factu colis suivi référ dossi clien"
        " pedid segui envío envio códig codig rastr fatur encom proto"
        " ordin fattu spedi tracc prati"
        " zendi klant pakke pakje"
        " zamów zamow fakt faktu przes paczk"
        " spårn spårnr ärend kolli"
        " versi relea build firmw"
    ),
    "weak": "id ids code codice",
    "number": "number no nr num numer numero número numéro nummer",
    "my": "my mon mi mój moj mojego mein meine meiner mijn meu minha mitt min mio il our her his their",
}
"""``other``: what is no personal number. ``weak``: the same, unless another word of these stands with it."""

_WORDS: dict[str, frozenset[str]] = {}
for _topic, _known in _TOPICS.items():
    for _word in _known.split():
        _WORDS[_word] = _WORDS.get(_word, frozenset()) | {_topic}

_BEFORE = 48
_AFTER = 24
_NEAR = 3
_LISTED = 1
_NOTHING: frozenset[str] = frozenset()
_PHONE = frozenset({"phone"})
_OTHER = frozenset({"other"})
_SAID_BEFORE = frozenset({"other", "number", "my", "weak"})
_TOKEN = re.compile(r"[^\W\d_]+|[0-9]|\n")
_PART = re.compile(r"[A-Z]?[^A-Z]+|[A-Z]+")


def topics(text: str, start: int, end: int) -> frozenset[str]:
    """What the words around ``text[start:end]`` say: the nearest before it that says something, or else behind it.

    Words that rule a number out (``other``) count among the last three before it. Another number ends the search, so
    that "order 17 was paid with 4111..." says nothing against a card, unless both are of a list: "415... or 416...".
    """
    return _before(_TOKEN.findall(text, max(0, start - _BEFORE), start)) or _behind(
        _TOKEN.findall(text, end, end + _AFTER)
    )


def _before(tokens: list[str]) -> frozenset[str]:
    weak = _NOTHING
    owned = crossed = line_ended = False
    distance = 0
    for token in reversed(tokens):
        if token == "\n":
            line_ended = True
        elif token.isdecimal():
            if not crossed and (line_ended or distance > _LISTED):
                break
            crossed = True
        else:
            for word in _parts(token):
                distance += 1
                said = _look_up(word)
                if "number" in said:
                    owned = True
                    continue
                if "my" in said and owned:
                    return _PHONE
                if "weak" in said:
                    weak = _OTHER if distance <= _NEAR else weak
                elif said and "my" not in said and (distance <= _NEAR or "other" not in said):
                    return said
                owned = False
    return weak


def _behind(tokens: list[str]) -> frozenset[str]:
    for token in tokens:
        said = _look_up(token) - _SAID_BEFORE
        if said:
            return said
    return _NOTHING


def _parts(word: str) -> Sequence[str]:
    """A word, or from behind the parts of one that is written likeThis."""
    if word.islower() or word[1:].islower() or word.lower() in _WORDS:
        return (word,)
    return _PART.findall(word)[::-1]


def _look_up(word: str) -> frozenset[str]:
    word = word.lower()
    return _WORDS.get(word) or _WORDS.get(word[:STEM], _NOTHING)
