"""Probes: the proof that a replica serves what was evaluated.

When a release is evaluated, its answers to eight prompts are recorded together with the log-probabilities of every
token of the vocabulary at every answer position. Before a replica may route to it, the weights in the replica are
hashed and each recorded answer is scored again: alone, in one forward, teacher-forced. On the same machine class the
rows must be equal bit for bit. Elsewhere their mean KL divergence must be small, and small against what the previous
champion gives for the same answers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flywheel.errors import ProbeFailed
from flywheel.release.releases import Release, recordings
from flywheel.store.digests import short, tensor_digests, weights_digest
from flywheel.store.files import publish_folder, read_json, write_json
from flywheel.store.home import Home

if TYPE_CHECKING:
    import torch

    from flywheel.engine.engine import Engine
    from flywheel.models import ChatTokenizer

PROBES = 8
ANSWER_TOKENS = 8
MAX_KL = {"float32": 1e-5, "bfloat16": 5e-3}
"""Largest mean KL, in nats per token, between recording and replica on different machine classes. (Measured on a 135M
model in bf16: batching alone moves it by 7e-4, one training step more by 2e-2.)"""
CHAMPION_SHARE = 0.5
"""The mean KL must also stay under this share of the KL to the previous champion."""

NEUTRAL_PROMPTS: tuple[str, ...] = (
    "Name a colour.",
    "Count from one to five.",
    "What day comes after Monday?",
    "Write the first three letters of the alphabet.",
    "Is water wet? Answer yes or no.",
    "Finish the sentence: the sky is",
    "What is two plus two?",
    "Say hello in one word.",
)
"""Asked when the caller has no items of its own, as for the base release at a cold start."""

RECORDING, ROWS = "probes.json", "probes.safetensors"

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class ProbeReport:
    """What a probe found.

    Attributes:
        mode: ``bitwise`` (same machine class), ``kl`` (another one), ``recorded`` (there was nothing to compare with,
            this was the first load of a base release), ``none`` (the weights were wrong already).
        mean_kl: mean over all answer tokens of KL(recorded || replica), in nats.
        kl_to_champion: the same against the previous champion; None when there is none to compare with.
        failures: why it did not pass; probes are named by ordinal, never by text.
    """

    passed: bool
    mode: Literal["bitwise", "kl", "recorded", "none"]
    mean_kl: float | None = None
    kl_to_champion: float | None = None
    failures: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; ``from_json`` reads it back."""
        return asdict(self) | {"failures": list(self.failures)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ProbeReport:
        """From what ``to_json`` gave."""
        return cls(
            passed=value["passed"] is True,
            mode=value["mode"],
            mean_kl=value.get("mean_kl"),
            kl_to_champion=value.get("kl_to_champion"),
            failures=tuple(value.get("failures") or ()),
        )


def is_recorded(home: Home, release_digest: str) -> bool:
    """Whether a release has its probe recording."""
    return (recordings(home, release_digest) / RECORDING).exists()


def record_probes(
    engine: Engine,
    tokenizer: ChatTokenizer,
    release: Release,
    prompts: Sequence[Messages],
    folder: Path,
    *,
    sources: Sequence[str] | None = None,
) -> Path:
    """Record what a loaded release answers, into ``folder`` (see ``releases.recordings``); an earlier one is kept.

    Args:
        engine: has ``release.adapter`` loaded.
        prompts: chat messages; the first eight that fit the context are used, the neutral ones when there is none.
        sources: the interaction that each prompt came from, so that an erasure finds it; None for prompts of nobody.
        folder: made whole or not at all: ``probes.safetensors`` (``<n>``: float32 [answer, vocabulary] log-softmax)
            and ``probes.json``.
    """
    from safetensors.torch import save_file

    from flywheel.engine.sampling import SamplingParams

    if (folder / RECORDING).exists():
        return folder
    named = zip(prompts, sources if sources is not None else [""] * len(prompts), strict=True)
    encode = ((tokenizer.encode_prompt(release.with_prompt(messages)), source) for messages, source in named)
    room = engine.max_context - ANSWER_TOKENS
    chosen = list(itertools.islice((pair for pair in encode if len(pair[0]) <= room), PROBES))
    if not chosen:
        neutral = ([{"role": "user", "content": text}] for text in NEUTRAL_PROMPTS)
        chosen = [(tokenizer.encode_prompt(release.with_prompt(messages)), "") for messages in neutral]
    probes, rows = [], {}
    for ordinal, (prompt_ids, source) in enumerate(chosen):
        answer = engine.generate(prompt_ids, SamplingParams(max_tokens=ANSWER_TOKENS), adapter=release.adapter)
        answer_ids = list(answer.ids) or [min(tokenizer.eos_ids)]  # an empty answer is the end token
        rows[str(ordinal)] = engine.teacher_forced(prompt_ids, answer_ids, adapter=release.adapter).contiguous()
        probes.append({"prompt_ids": list(prompt_ids), "answer_ids": answer_ids, "from": source, "row": str(ordinal)})
    temporary = folder.parent / f".{folder.name[:12]}.{uuid.uuid4().hex}"
    temporary.mkdir(parents=True)
    save_file(rows, temporary / ROWS)
    write_json(
        temporary / RECORDING,
        {
            "schema_version": 1,
            "release": release.digest,
            "machine_class": engine.compute.machine_class,
            "dtype": engine.compute.dtype,
            "rows_digest": rows_digest(temporary, probes),
            "probes": probes,
        },
    )
    publish_folder(temporary, folder)
    return folder


def rows_digest(folder: Path, probes: Sequence[dict[str, Any]]) -> str:
    """Digest of the rows that belong to some probes of a recording; rows of others do not count."""
    found = tensor_digests(folder / ROWS)
    return weights_digest({name: found[name] for name in _row_names(probes) if name in found})


def check_probes(engine: Engine, release: Release, folder: Path, *, champion: Release | None = None) -> ProbeReport:
    """Hash the release's weights in the engine and score its recorded answers again.

    Args:
        engine: has ``release.adapter`` loaded.
        folder: what ``record_probes`` wrote for this release, anywhere.
        champion: the release served until now, if this engine has it loaded; bounds the KL between machine classes.

    Raises:
        ProbeFailed: the recording is missing, damaged, or of another release.
    """
    wrong = weights_failure(engine, release)
    if wrong is not None:
        return ProbeReport(False, "none", failures=(wrong,))
    recorded, rows = _read_recording(folder, release)
    probes = recorded["probes"]
    asked = [rows[name] for name in _row_names(probes)]
    served = [_forced(engine, probe, release) for probe in probes]
    kls = [_kl(was, row) for was, row in zip(asked, served, strict=True)]
    mean_kl = _mean(kls)
    if recorded["machine_class"] == engine.compute.machine_class:
        failures = tuple(
            f"probe {n} of {len(probes)} differs from its recording (mean KL {sum(kls[n]) / len(kls[n]):.2e}), "
            "on the same machine class"
            for n, (was, row) in enumerate(zip(asked, served, strict=True))
            if not _bitwise_equal(was, row)
        )
        return ProbeReport(not failures, "bitwise", mean_kl, None, failures)
    coarser = "bfloat16" if "bfloat16" in (recorded["dtype"], engine.compute.dtype) else "float32"
    kl_to_champion = None
    found = (
        [] if mean_kl <= MAX_KL[coarser] else [f"mean KL {mean_kl:.2e} is above {MAX_KL[coarser]:.0e} for {coarser}"]
    )
    if champion is not None and champion.checkpoint != release.checkpoint:
        kl_to_champion = _mean(
            [_kl(was, _forced(engine, probe, champion)) for was, probe in zip(asked, probes, strict=True)]
        )
        if mean_kl >= CHAMPION_SHARE * kl_to_champion:
            found.append(
                f"mean KL {mean_kl:.2e} is not under half of {kl_to_champion:.2e}, the KL to the previous champion"
            )
    return ProbeReport(not found, "kl", mean_kl, kl_to_champion, tuple(found))


def weights_failure(engine: Engine, release: Release) -> str | None:
    """What is wrong with the weights in the engine, read back and hashed now; None when they are the release's."""
    different = release.differs_from(engine.model)
    if different:
        return f"the engine's base model has another {', '.join(different)} than release {release.name}"
    if release.adapter is None:
        return None
    found = engine.adapter_digest(release.adapter)
    if found != release.checkpoint:
        return f"weights read back are {short(found)}, the manifest says {short(release.checkpoint or '')}"
    return None


def _read_recording(folder: Path, release: Release) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors.torch import load_file

    try:
        recorded: dict[str, Any] = read_json(folder / RECORDING)
        found = rows_digest(folder, recorded["probes"])
    except FileNotFoundError:
        raise ProbeFailed(f"release {release.name} has no probe recording in {folder}; evaluate it again") from None
    if recorded["release"] != release.digest or recorded["rows_digest"] != found:
        raise ProbeFailed(f"{folder}: damaged probe recording, or not of release {release.name}; evaluate it again")
    return recorded, load_file(folder / ROWS)


def _row_names(probes: Sequence[dict[str, Any]]) -> list[str]:
    """The name of each probe's rows; recordings of earlier versions go by ordinal."""
    return [str(probe.get("row", ordinal)) for ordinal, probe in enumerate(probes)]


def _forced(engine: Engine, probe: dict[str, Any], release: Release) -> torch.Tensor:
    return engine.teacher_forced(probe["prompt_ids"], probe["answer_ids"], adapter=release.adapter)


def _bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    same = a.shape == b.shape and a.dtype == b.dtype == torch.float32
    return same and torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


def _kl(reference: torch.Tensor, other: torch.Tensor) -> list[float]:
    """KL(reference || other) per row, from log-softmax rows [answer, vocabulary]; infinite when shapes differ."""
    if reference.shape != other.shape:
        return [float("inf")]
    p, q = reference.double(), other.double()
    terms = (p.exp() * (p - q)).masked_fill(p.exp() == 0, 0.0)
    rows: list[float] = terms.sum(-1).tolist()
    return rows


def _mean(rows: list[list[float]]) -> float:
    values = [value for row in rows for value in row]
    return sum(values) / len(values)
