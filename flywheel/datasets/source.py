"""What a dataset is made from: label versions of a window, joined with the interactions they speak about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from flywheel.datasets.prompts import Message, clean, prompt_text, with_prompt
from flywheel.datasets.rows import KTO, PAIR, SFT, Row, make_row
from flywheel.labels.targets import answer_text
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query, visible

Label = Mapping[str, Any]

_WANTED = """
SELECT interaction_id, conversation_id, user_key, request, response, release, model_requested
FROM rows
WHERE interaction_id IN (SELECT unnest(?::VARCHAR[]))
ORDER BY interaction_id
"""

_CHUNK = 2048
_TEACHING = (SFT, PAIR, KTO)


def window(
    labels: Sequence[Label], *, from_seq: int, graduated: Collection[str], learned: Collection[str]
) -> list[Label]:
    """The labels to learn from: those with a use that are new since ``from_seq``, and graduated suite items.

    A graduated item was labelled for evaluation, perhaps long ago; it trains once, in the first window in which it is
    not in the lineage (``learned``).
    """
    return [
        label
        for label in labels
        if (label["use"] in _TEACHING and label["seq"] > from_seq)
        or (label["use"] in ("sft", "eval") and label["target_id"] in graduated and label["target_id"] not in learned)
    ]


def join(
    home: Home, registry: Registry, task: str, labels: Sequence[Label], prompt: str | None
) -> tuple[list[Row], Counter[str]]:
    """The rows of labels that have a prompt and an answer, and how many have none, by reason.

    A label that names the better of two answers makes a pair besides what it teaches alone. Reasons:
    ``interaction_missing``, ``no_prompt``, ``no_target``, ``truncated_answer`` (the model's own answer hit its length
    limit).
    """
    ids = sorted(label["target_id"] for label in labels)
    found = query(home, registry, "interactions", task, _WANTED, [ids]).to_pylist()
    interactions = {row["interaction_id"]: row for row in found}
    rows: list[Row] = []
    dropped: Counter[str] = Counter()
    for label in sorted(labels, key=lambda label: str(label["target_id"])):
        interaction = interactions.get(label["target_id"])
        made = "interaction_missing" if interaction is None else _rows(label, interaction, prompt)
        if isinstance(made, str):
            dropped[made] += 1
        else:
            rows += made
    return rows, dropped


def traffic(home: Home, registry: Registry, task: str) -> tuple[int, Iterator[list[str]]]:
    """How many interactions a task has, and their prompt texts in chunks."""
    with registry.read() as tx:
        segments = visible(tx, "interactions", task)

    def texts() -> Iterator[list[str]]:
        for segment in segments:
            with pq.ParquetFile(home.data / segment["path"]) as file:
                for batch in file.iter_batches(batch_size=_CHUNK, columns=["request"]):
                    requests = batch.column(0).to_pylist()
                    yield [prompt_text(json.loads(request)["messages"]) for request in requests]

    return sum(segment["rows"] for segment in segments), texts()


def _rows(label: Label, interaction: Mapping[str, Any], prompt: str | None) -> list[Row] | str:
    """What a label teaches, or why it teaches nothing."""
    request = json.loads(interaction["request"])
    messages = with_prompt(clean(request["messages"]), prompt)
    if not prompt_text(messages):
        return "no_prompt"
    use = label["use"] if label["use"] in _TEACHING else SFT  # an item of a retired suite
    own = bool(label["self_generated"]) or use == KTO
    disliked = use == KTO and label["y"] < 0.5
    answer = _answer(label, json.loads(interaction["response"] or "{}"), own, whole=not disliked)
    if isinstance(answer, str):
        return answer

    def row(kind: str, **more: Any) -> Row:
        return make_row(
            messages,
            answer,
            request.get("tools"),
            interaction_id=interaction["interaction_id"],
            user_key=interaction["user_key"] or "",
            conversation_id=interaction["conversation_id"] or "",
            weight=float(label["weight"]),
            generated_by=(interaction["release"] or interaction["model_requested"] or "unknown") if own else "",
            label_source=label["label_source"] or "",
            policy_digest=label["policy_digest"],
            seq=label["seq"],
            kind=kind,
            **more,
        )

    rows = [] if use == PAIR else [row(KTO, desirable=label["y"] > 0.5) if use == KTO else row(SFT)]
    if label["rejected"]:
        rows.append(row(PAIR, rejected={"role": "assistant", "content": label["rejected"]}))
    return rows


def _answer(label: Label, response: Mapping[str, Any], own: bool, *, whole: bool) -> Message | str:
    """The message that a label is about, or why there is none. The model's own answer keeps its tool calls.

    Args:
        whole: whether an answer that hit its length limit is of no use.
    """
    text = (label["chosen"] or "").strip()
    if not own:
        return {"role": "assistant", "content": text} if text else "no_target"
    if whole and response.get("finish_reason") == "length":
        return "truncated_answer"
    (answer,) = clean([response.get("message") or {}])
    message: Message = {"role": "assistant"}
    if said := text or answer_text({"message": answer}).strip():
        message["content"] = said
    if answer.get("tool_calls"):
        message["tool_calls"] = answer["tool_calls"]
    return message if len(message) > 1 else "no_target"
