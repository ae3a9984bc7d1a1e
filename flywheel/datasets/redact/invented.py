"""Names and words that surrogates are made of: they sound like names, and nobody is called so."""

from __future__ import annotations

from flywheel.datasets.redact.draw import Draw

_BEGINNINGS = "Bram Cor Del Fen Gal Hal Jor Kel Lor Mar Nev Or Per Quin Sel Tor Vel Wen Yor Zan"
_ENDINGS = (
    "abrith adova afald agisk andrel askel edune elsin emrick ervane esko ethane evick idore ilsa imond inessk irune"
    " isolt iveth odrin omarsk onyra ovane ulith usken"
)

NAMES = tuple(beginning + ending for beginning in _BEGINNINGS.split() for ending in _ENDINGS.split())
_WORDS = (
    "amber anvil aspen atlas badger basalt beacon birch bison bramble cedar cinder clover cobalt comet copper"
    " coral cove crane delta dune ember falcon fern flint gable glacier granite grove harbor hazel heron hollow"
    " indigo iris ivory jade juniper kelp lagoon lantern larch lichen linden lumen maple marble meadow mesa mica"
    " mill moss nectar nimbus oak ochre onyx opal orbit osprey otter pebble pine plume prairie quarry quartz quill"
    " raven reef ridge river rowan saffron sage sable slate spruce summit tarn thistle timber topaz tundra umber"
    " valley vapor violet walnut willow wren yarrow zephyr zinc"
)
WORDS = tuple(_WORDS.split())

_KNOWN = frozenset(name.lower() for name in NAMES)


def a_name(draw: Draw) -> str:
    """One of 520 names, first or last alike."""
    return draw.pick(NAMES)


def is_a_name(word: str) -> bool:
    """Whether it is one of them, in any case."""
    return word.lower() in _KNOWN
