"""Labels to datasets: deduplicate, keep judges apart from lessons, cap, split, replay, and publish with a card."""

from flywheel.datasets.build import build
from flywheel.datasets.files import from_jsonl
from flywheel.datasets.firewall import HeldOut, is_large
from flywheel.datasets.neardup import cluster_ids, clusters, near_any
from flywheel.datasets.prompts import clean, prompt_text, with_prompt
from flywheel.datasets.publish import (
    DatasetBuild,
    lineage_interactions,
    lineage_prompts,
    load_examples,
    load_manifest,
)
from flywheel.datasets.rows import KTO, PAIR, SFT

__all__ = [
    "KTO",
    "PAIR",
    "SFT",
    "DatasetBuild",
    "HeldOut",
    "build",
    "clean",
    "cluster_ids",
    "clusters",
    "from_jsonl",
    "is_large",
    "lineage_interactions",
    "lineage_prompts",
    "load_examples",
    "load_manifest",
    "near_any",
    "prompt_text",
    "with_prompt",
]
