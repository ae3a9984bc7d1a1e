from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flywheel.datasets import HeldOut, cluster_ids, from_jsonl, lineage_prompts, load_examples, prompt_text
from flywheel.datasets.rows import from_columns, prompt_mac

RAW = ("ana.ruiz@acme.io", "ANA.RUIZ@ACME.IO", "4929123456789015", "4158675309", "81.2.69.142")
KEY = "hf_" + "abcdefghijklmnopq" * 2


def stored(folder: Path) -> str:
    """All that a folder's datasets say."""
    from pyarrow import parquet

    return "".join(
        str(parquet.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )


def test_nothing_personal_and_no_secret_is_stored_for_training(world: Any) -> None:
    world.teach(f"I am {RAW[0]}, I paid with {RAW[2]}", f"wrote to {RAW[0]} about {RAW[2][:4]} {RAW[2][4:8]}")
    world.teach(f"My number is {RAW[3]}, my key {KEY}", f"calling {RAW[3]}")
    built = world.build()
    text = stored(world.at.home.datasets)
    assert not any(value in text for value in (*RAW, KEY))
    assert built.manifest["redaction"] == {"card": 1, "email": 2, "phone": 2, "secret:huggingface": 1}
    card = (world.at.home.datasets / built.digest / "card.md").read_text()
    assert "## Redacted" in card and "| email | 2 |" in card
    for row in world.rows(built):
        for word in row["target"].split():
            assert word.isalpha() or word.isdigit() or word in row["prompt"]


def test_both_answers_of_a_pair_have_the_surrogates_of_their_prompt(world: Any) -> None:
    name = world.ask(f"I am {RAW[0]}, my number is {RAW[3]}", answer=f"hello {RAW[0]}")
    world.label(name, f"calling {RAW[3]}", rejected=f"hello {RAW[0]}")
    world.teach_many(3)
    built = world.build()
    (pair,) = [row for row in load_examples(world.at.home, built.digest) if row["kind"] == "pair"]
    prompt, chosen = (message["content"] for message in json.loads(pair["messages"])[-2:])
    made = json.loads(pair["rejected"])["content"].removeprefix("hello ")
    assert prompt == f"I am {made}, my number is {chosen.removeprefix('calling ')}"
    assert not any(value in str(pair) for value in RAW)


def test_what_the_tasks_prompt_tells_everybody_stays(make_world: Callable[..., Any]) -> None:
    world = make_world("desk")
    world.at.config.tasks[world.at.task].__dict__["prompt"] = "Send complaints to desk@acme.io."
    world.teach(f"I am {RAW[0]}, where do I write?", f"desk@acme.io, dear {RAW[0]}")
    (row,) = load_examples(world.at.home, world.build().digest)
    system, _, answer = (message["content"] for message in json.loads(row["messages"]))
    assert system == "Send complaints to desk@acme.io."
    assert answer.startswith("desk@acme.io, dear ") and RAW[0] not in answer


def test_the_same_traffic_gives_the_same_dataset_and_a_replayed_row_is_as_it_was(
    world: Any, phrases: Callable[..., list[str]]
) -> None:
    for n, text in enumerate(phrases(range(40))):
        if n == 10:
            first = world.build()
            assert world.build().digest == first.digest
            seq = world.seq
        world.teach(f"{text} user{n}@acme.io", f"answer to user{n}@acme.io", user=f"u{n}")
    second = world.build(from_seq=seq, lineage=[first.digest], parent=first.digest)
    known = {row["example_id"]: row["messages"] for row in load_examples(world.at.home, first.digest)}
    replayed = [row for row in load_examples(world.at.home, second.digest) if row["origin"] == "replay"]
    assert replayed, second.manifest["replay"]
    assert all(known[row["example_id"]] == row["messages"] for row in replayed)
    assert second.manifest["redaction"] == {"email": 60}


def test_ids_of_stored_rows_are_those_of_what_is_stored(world: Any) -> None:
    world.teach(f"I am {RAW[0]}", "hello")
    (row,) = load_examples(world.at.home, world.build().digest)
    from flywheel.datasets.rows import rewritten

    again = from_columns(row)
    assert rewritten(again, again.messages, again.tools, None).example_id == row["example_id"]


def test_the_users_own_file_is_redacted_too(deployment: Any, tmp_path: Path) -> None:
    rows = [{"text": f"I am {RAW[0]} number {n * 77777}", "label": f"hello {RAW[0]}"} for n in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    at = deployment
    built = from_jsonl(at.config, at.home, at.registry, at.task, path)
    assert built.manifest["redaction"] == {"email": 8}
    assert RAW[0] not in stored(at.home.datasets)


def test_a_held_out_prompt_is_known_in_its_redacted_copy(make_world: Callable[..., Any]) -> None:
    world = make_world(replay_share=0.5, val_share=0)
    asked = f"{RAW[0]} {RAW[2]} {RAW[3]}"  # nothing of it stays
    world.teach(asked, "on its way")
    world.teach_many(3)
    first = world.build()
    known = lineage_prompts(world.at.home, [first.digest])
    assert asked not in known.values() and prompt_mac(world.at.home.secret(), prompt_text(said(asked))) in known
    world.teach_many(4, first=50)
    held = HeldOut(prompts=(prompt_text(said(asked)),))
    again = world.build(from_seq=4, parent=first.digest, lineage=[first.digest], held_out=held)
    assert again.manifest["replay"]["dropped"] == {"held_out_copy": 1} and again.replay == 3


def test_a_replayed_row_is_known_by_its_raw_prompt_in_the_next_dataset_too(make_world: Callable[..., Any]) -> None:
    world = make_world(replay_share=0.5, val_share=0)
    world.teach(f"I am {RAW[0]}", "hello")
    first = world.build()
    world.teach_many(2, first=50)
    again = world.build(from_seq=1, parent=first.digest, lineage=[first.digest])
    (row,) = [row for row in world.rows(again) if row["origin"] == "replay"]
    assert row["prompt_mac"] == prompt_mac(world.at.home.secret(), prompt_text(said(f"I am {RAW[0]}")))


def test_the_name_of_a_cluster_leads_back_to_no_text(world: Any) -> None:
    world.teach("hi", "hello")
    (row,) = world.rows(world.build())
    assert row["cluster_id"] not in ("", *cluster_ids(["hi"], threshold=0.7))


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_a_task_can_say_what_is_replaced(make_world: Callable[..., Any]) -> None:
    off = make_world("off", redact={"enabled": False})
    off.teach(f"I am {RAW[0]} at {RAW[4]}", "hello")
    built = off.build()
    assert RAW[0] in stored(off.at.home.datasets) and built.manifest["redaction"] == {}
    some = make_world("some", redact={"kinds": ["ip"]})
    some.teach(f"I am {RAW[0]} at {RAW[4]}", "hello")
    assert some.build().manifest["redaction"] == {"ip": 1}


def test_names_without_presidio_are_refused_before_anything_is_stored(make_world: Callable[..., Any]) -> None:
    import importlib.util

    from flywheel.errors import ConfigError

    if importlib.util.find_spec("presidio_analyzer"):
        pytest.skip("the extra presidio is installed")
    world = make_world("named", redact={"names": True})
    world.teach("I am Ana Ruiz", "hello")
    with pytest.raises(ConfigError, match="presidio"):
        world.build()
