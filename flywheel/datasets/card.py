"""The card: a dataset's manifest in words, for people. Like the manifest it holds no text of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.store.digests import short

REASONS = {
    "interaction_missing": "the labelled interaction is not in the store",
    "no_prompt": "the request has no text",
    "no_target": "the label has no answer to learn",
    "truncated_answer": "the model's answer ended at its length limit",
    "duplicate": "same prompt and same target as a row that stayed",
    "contradiction": "outvoted by another target for the same prompt",
    "contradiction_tie": "two targets for one prompt with equal weight",
    "held_out_interaction": "firewall: an item that judges the model",
    "held_out_conversation": "firewall: its conversation judges the model",
    "held_out_copy": "firewall: an exact copy of a held-out prompt",
    "held_out_near_copy": "firewall: a near copy of a held-out prompt",
    "broken_text": "text that could not be decoded",
    "repetitive_answer": "the answer repeats itself again and again",
    "echo": "the answer repeats the last message",
    "broken_call": "a tool call whose arguments are no JSON object",
    "earlier_turn": "learned in the row of a later turn of its conversation",
    "beyond_selection": "more of its kind than were selected",
    "eval_copy": "an exact copy of a prompt in the evaluation file",
    "eval_near_copy": "a near copy of a prompt in the evaluation file",
    "eval_user": "a user or conversation of the evaluation file",
    "erased_user": "the user was erased",
    "erased": "of a user who was erased later",
    "user_cap": "one user's rows beyond the cap",
    "user_cluster_cap": "one user's near copies beyond the cap",
    "cluster_cap": "near copies beyond the cap",
    "self_generated_cap": "the model's own answers beyond their share",
    "superseded": "a newer label says otherwise",
    "in_new": "the prompt or interaction is among the new rows",
    "shares_val": "shares a user, conversation or cluster with the validation side",
}


def card(manifest: Mapping[str, Any]) -> str:
    """Markdown of one dataset."""
    rows, caps, firewall, replay = (manifest[key] for key in ("rows", "caps", "firewall", "replay"))
    parent = manifest["parent"]
    lines = [
        f"# Dataset {short(manifest['digest'])} of task `{manifest['task']}`",
        "",
        f"- Digest: `{manifest['digest']}`",
        f"- Parent: `{parent}`" if parent else "- Parent: none; the first of its lineage",
        f"- Rows: {rows['train']} to train on, {rows['val']} to validate; "
        f"{rows['new']} new, {rows['replay']} replayed, {rows['anchor']} anchors",
        f"- Besides: {manifest['kinds']['pair']} pairs of answers, {manifest['kinds']['kto']} found good or bad",
        f"- Targets: {manifest['targets']['distinct']} different ones",
        f"- Written by a model itself: {manifest['self_generated']['share']:.1%} of rows",
        f"- Largest share of one user: {caps['largest_user_share']:.1%}; "
        f"{caps['capped_users']} users lost {caps['capped_rows']} rows to the caps",
        f"- Firewall: stopped {firewall['stopped']} of {firewall['screened']} rows ({firewall['share']:.1%})"
        + ("; more than 10 %, look at how traffic is sampled" if firewall["warn"] else ""),
    ]
    lines += [f"- Note: {note}" for note in manifest["notes"]]
    lines += ["", "## Where the labels come from", "", *_table(("source", "new rows"), manifest["labels"])]
    lines += ["", f"## Dropped, of {manifest['considered']} labelled rows", "", *_reasons(manifest["dropped"])]
    if redacted := manifest.get("redaction"):
        lines += ["", "## Redacted", "", *_table(("kind", "places"), redacted)]
    if replay["candidates"]:
        lines += ["", f"## Not replayed, of {replay['candidates']} earlier rows", "", *_reasons(replay["dropped"])]
    lines += [
        "",
        "## Use",
        "",
        "`examples.parquet` has one row per example: `messages` is JSON and ends with the answer, `train_mask` says "
        "which messages are learned, `side` is `train` or `val`. Of the kind `sft` the answer is learned; of `pair` it "
        "is better than `rejected`; of `kto` it is `desirable` or not. The two sides share no user, conversation or "
        "near-duplicate cluster.",
    ]
    return "\n".join(lines) + "\n"


def _reasons(dropped: Mapping[str, int]) -> list[str]:
    return _table(("reason", "rows"), {f"{reason}: {REASONS.get(reason, '')}": n for reason, n in dropped.items()})


def _table(head: tuple[str, str], counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return ["None."]
    return [
        f"| {head[0]} | {head[1]} |",
        "|---|---:|",
        *(f"| {name or 'unknown'} | {n} |" for name, n in counts.items()),
    ]
