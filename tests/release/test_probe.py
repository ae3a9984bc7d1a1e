"""A probe passes for what was evaluated and for nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import CheckpointError, ProbeFailed
from flywheel.release.probe import ANSWER_TOKENS, PROBES, ProbeReport, check_probes, is_recorded, record_probes
from flywheel.release.recording import record_evaluated
from flywheel.release.releases import recordings


def _folder(world: Any, release: Any) -> Path:
    return recordings(world.home, release.digest)


def _elsewhere(world: Any, release: Any, dtype: str | None = None) -> Path:
    """Make the recording look like one of another machine class."""
    folder = _folder(world, release)
    recorded = json.loads((folder / "probes.json").read_text())
    recorded["machine_class"] = "another machine"
    recorded["dtype"] = dtype or recorded["dtype"]
    (folder / "probes.json").write_text(json.dumps(recorded))
    return folder


def _nudge(world: Any, release: Any, folder: Path, factor: float) -> Path:
    """A copy of the release's adapter whose B matrices are scaled by ``factor``."""
    import torch

    from flywheel.engine.adapters import read_adapter, write_adapter

    adapter = read_adapter(release.adapter_folder(world.home))
    tensors = {k: v * factor if "lora_B" in k else v for k, v in adapter.tensors.items()}
    assert all(torch.isfinite(v).all() for v in tensors.values())
    write_adapter(folder, adapter.config, tensors)
    return folder


def _impostor(world: Any, engine: Any, release: Any, folder: Path) -> Any:
    """Load other weights under the release's name; the release returned claims just these weights."""
    found = engine.load_adapter(release.name, folder)
    return replace(release, checkpoint=found)


def test_the_release_that_was_recorded_passes_bit_for_bit(
    served: Any, target: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    release = recorded_candidate(1)
    target.load(release)
    assert target.probe(release) == ProbeReport(True, "bitwise", 0.0, None, ())


def test_what_else_is_loaded_or_running_does_not_change_a_probe(
    served: Any, target: Any, engine: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    from flywheel.engine.engine import SamplingParams

    release, other = recorded_candidate(1), recorded_candidate(2)
    target.load(release)
    target.load(other)
    handles = [
        engine.submit([5, 6, 7 + n], SamplingParams(max_tokens=60), adapter=other.name, on_event=lambda event: None)
        for n in range(3)
    ]
    report = target.probe(release)
    for handle in handles:
        handle.cancel()
    assert report.passed and report.mode == "bitwise"


def test_a_recording_holds_at_most_eight_probes_of_eight_tokens_and_no_text(
    served: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    from safetensors.torch import load_file

    folder = _folder(served, recorded_candidate(1))
    recorded, rows = json.loads((folder / "probes.json").read_text()), load_file(folder / "probes.safetensors")
    assert len(recorded["probes"]) == len(rows) == PROBES
    for n, probe in enumerate(recorded["probes"]):
        assert 1 <= len(probe["answer_ids"]) <= ANSWER_TOKENS
        assert rows[str(n)].shape[0] == len(probe["answer_ids"]) and str(rows[str(n)].dtype) == "torch.float32"
    assert "colour" not in (folder / "probes.json").read_text()


def test_given_prompts_are_asked_with_the_release_system_prompt_and_a_recording_is_kept(
    served: Any, target: Any, engine: Any
) -> None:
    from flywheel.models import load_tokenizer

    release, tokenizer = served.candidate(1), load_tokenizer(served.model)
    target.load(release)
    asked = [[{"role": "user", "content": f"item {n}"}] for n in range(PROBES + 3)]
    folder = record_probes(engine, tokenizer, release, asked, _folder(served, release))
    first = (folder / "probes.json").read_bytes()
    probes = json.loads(first)["probes"]
    assert [probe["prompt_ids"] for probe in probes] == [
        tokenizer.encode_prompt([{"role": "system", "content": release.system_prompt}, *messages])
        for messages in asked[:PROBES]
    ]
    record_probes(engine, tokenizer, release, (), folder)
    assert (folder / "probes.json").read_bytes() == first
    assert [path.name for path in folder.parent.iterdir()] == [release.digest], "no temporary folder is left"


def test_the_weights_of_another_adapter_are_caught_by_their_digest(
    served: Any, target: Any, engine: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    release, other = recorded_candidate(1), recorded_candidate(2)
    engine.load_adapter(release.name, other.adapter_folder(served.home))
    report = target.probe(release)
    assert not report.passed and report.mode == "none" and "weights read back" in report.failures[0]
    with pytest.raises(CheckpointError):
        target.load(release)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_another_adapter_is_caught_by_its_answers_alone(
    served: Any, engine: Any, recorded_candidate: Callable[[int], Any], elsewhere: bool
) -> None:
    release, other = recorded_candidate(1), recorded_candidate(2)
    folder = _elsewhere(served, release) if elsewhere else _folder(served, release)
    impostor = _impostor(served, engine, release, other.adapter_folder(served.home))
    report = check_probes(engine, impostor, folder)
    assert not report.passed and report.mode == ("kl" if elsewhere else "bitwise")


def test_one_changed_bit_is_caught_by_the_digest_and_by_the_answers(
    served: Any, engine: Any, target: Any, tmp_path: Path, recorded_candidate: Callable[[int], Any]
) -> None:
    import shutil

    release = recorded_candidate(1)
    folder = tmp_path / "bit"
    shutil.copytree(release.adapter_folder(served.home), folder)
    path = folder / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-2] ^= 0x40  # a high bit of the last tensor's last exponent or mantissa
    path.write_bytes(bytes(data))
    impostor = _impostor(served, engine, release, folder)
    assert not target.probe(release).passed
    report = check_probes(engine, impostor, _folder(served, release))
    assert not report.passed and report.mode == "bitwise"


def test_on_another_machine_class_the_same_weights_pass_by_kl(
    served: Any, target: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    release = recorded_candidate(1)
    _elsewhere(served, release)
    target.load(release)
    report = target.probe(release)
    assert report.passed and report.mode == "kl" and report.mean_kl <= 1e-5
    assert report.kl_to_champion is not None and report.kl_to_champion > report.mean_kl, "compared with the base"


def test_a_small_difference_is_within_bf16s_limit_and_beyond_fp32s(
    served: Any, engine: Any, tmp_path: Path, recorded_candidate: Callable[[int], Any]
) -> None:
    release = recorded_candidate(1)
    impostor = _impostor(served, engine, release, _nudge(served, release, tmp_path / "nudged", 1.02))
    fp32 = check_probes(engine, impostor, _elsewhere(served, release))
    bf16 = check_probes(engine, impostor, _elsewhere(served, release, "bfloat16"))
    assert 1e-5 < fp32.mean_kl < 5e-3, fp32.mean_kl
    assert not fp32.passed and bf16.passed and fp32.mean_kl == bf16.mean_kl


def test_the_difference_must_be_under_half_of_that_to_the_champion(
    served: Any, engine: Any, target: Any, tmp_path: Path, recorded_candidate: Callable[[int], Any]
) -> None:
    release = recorded_candidate(1)
    folder = _elsewhere(served, release, "bfloat16")
    near = replace(release, digest="e" * 64, checkpoint="e" * 64)
    engine.load_adapter(near.name, _nudge(served, release, tmp_path / "champion", 1.025))
    impostor = _impostor(served, engine, release, _nudge(served, release, tmp_path / "nudged", 1.02))
    assert check_probes(engine, impostor, folder).passed
    report = check_probes(engine, impostor, folder, champion=near)
    assert 0.5 * report.kl_to_champion < report.mean_kl < report.kl_to_champion
    assert not report.passed and "previous champion" in report.failures[0]


def test_a_missing_damaged_or_foreign_recording_is_an_error(
    served: Any, target: Any, recorded_candidate: Callable[[int], Any]
) -> None:
    release, other = recorded_candidate(1), recorded_candidate(2)
    target.load(release)
    with pytest.raises(ProbeFailed, match="has no probe recording"):
        check_probes(target._engine, release, served.home.root / "nowhere")
    with pytest.raises(ProbeFailed, match="not of release"):
        check_probes(target._engine, release, _folder(served, other))
    path = _folder(served, release) / "probes.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ProbeFailed, match="damaged"):
        target.probe(release)


def test_the_base_release_is_recorded_at_its_first_probe_and_compared_from_then_on(served: Any, target: Any) -> None:
    base = served.release(served.champion().release)
    assert target.load(base) == base.name
    assert target.probe(base) == ProbeReport(True, "recorded")
    assert target.probe(base) == ProbeReport(True, "bitwise", 0.0, None, ())


def test_a_release_of_another_base_is_neither_loaded_nor_passed(served: Any, target: Any) -> None:
    base = served.release(served.champion().release)
    foreign = replace(base, base={**base.base, "weights_digest": "f" * 64})
    with pytest.raises(CheckpointError, match="another weights_digest"):
        target.load(foreign)
    assert not target.probe(foreign).passed


def test_a_checkpoint_that_is_not_what_the_release_says_does_not_stay_loaded(
    served: Any, target: Any, engine: Any
) -> None:
    release = served.candidate(1)
    wrong = replace(release, checkpoint=served.candidate(2).checkpoint)
    moved = served.home.checkpoints / wrong.checkpoint
    moved.rename(moved.with_name("aside"))
    release.adapter_folder(served.home).rename(moved)
    with pytest.raises(CheckpointError, match="was made from"):
        target.load(wrong)
    assert wrong.name not in engine.adapters()


def test_status_hashes_what_is_loaded(served: Any, target: Any, recorded_candidate: Callable[[int], Any]) -> None:
    release = recorded_candidate(1)
    target.load(release)
    assert target.status() == {release.name: release.checkpoint}
    target.unload(release.name)
    target.unload(release.name)
    assert target.status() == {}


def test_a_report_survives_json() -> None:
    report = ProbeReport(False, "kl", 0.5, 0.25, ("mean KL is above the limit",))
    assert ProbeReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def _spec(world: Any, release: Any, questions: int) -> Any:
    from flywheel.evaluation.items import make_item, make_suite, write_suite
    from flywheel.evaluation.spec import make_spec

    suites = []
    for kind, count in (("gate", questions), ("golden", 0)):
        items = [
            make_item(f"{kind}-{n}", "", [{"role": "user", "content": f"item {n}"}], None, "yes", cluster=n, novel=True)
            for n in range(count)
        ]
        suites.append(make_suite(world.task, kind, items))
        write_suite(world.home, suites[-1])
    champion = world.release(world.champion().release)
    gate, golden = (suite.digest for suite in suites)
    return make_spec(
        world.config,
        world.home,
        world.task,
        champion=champion,
        candidate=release,
        pointer_version=1,
        gate=gate,
        golden=golden,
    )


@pytest.mark.parametrize("questions", [3, 0])
def test_a_candidate_is_recorded_on_its_gate_items_and_passes_in_the_replica(
    served: Any, target: Any, questions: int
) -> None:
    release = served.candidate(1)
    said: list[str] = []
    record_evaluated(_spec(served, release, questions), said.append)
    assert is_recorded(served.home, release.digest) and "recorded" in said[0] and "item" not in said[0]
    probes = json.loads((_folder(served, release) / "probes.json").read_text())["probes"]
    assert len(probes) == (questions or PROBES)
    target.load(release)
    assert target.probe(release).passed
    record_evaluated(_spec(served, release, questions), said.append)
    assert len(said) == 1, "what is recorded is not recorded again"


def test_a_checkpoint_that_changed_after_its_evaluation_is_not_recorded(served: Any) -> None:
    release, other = served.candidate(1), served.candidate(2)
    folder = release.adapter_folder(served.home)
    folder.rename(folder.with_name("aside"))
    other.adapter_folder(served.home).rename(folder)
    with pytest.raises(CheckpointError, match="weights read back"):
        record_evaluated(_spec(served, release, 1), lambda line: None)
    assert not is_recorded(served.home, release.digest)


def test_prompts_that_leave_no_room_for_an_answer_are_passed_over(served: Any, target: Any, engine: Any) -> None:
    release = served.candidate(1)
    target.load(release)
    asked = [[{"role": "user", "content": "long " * engine.max_context}], [{"role": "user", "content": "short"}]]
    folder = record_probes(engine, engine.tokenizer, release, asked, _folder(served, release))
    assert len(json.loads((folder / "probes.json").read_text())["probes"]) == 1
