"""Champion and candidate on the same items: right scores, the same ones every time, whatever happens in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.datasets.prompts import with_prompt
from flywheel.errors import ConfigError, EvaluationError
from flywheel.evaluation.items import Suite, make_item, make_suite, write_suite
from flywheel.evaluation.report import load_scores, scores_path
from flywheel.evaluation.runner import evaluate, finished, register_evaluation, registered_evaluation, run_spec
from flywheel.evaluation.scorers import normalise_answer
from flywheel.evaluation.spec import EvaluationSpec, make_spec
from flywheel.store.digests import digest
from flywheel.store.registry import schema

TOKENS = 6


@dataclass(frozen=True)
class Served:
    """A release as the runner sees it."""

    digest: str
    name: str
    base: dict[str, str]
    checkpoint: str | None
    system_prompt: str | None
    sampling: dict[str, Any]


@dataclass(frozen=True)
class World:
    """A home with two releases, a suite whose labels are their solo answers, and the spec that compares them."""

    deployment: Any
    champion: Served
    candidate: Served
    gate: Suite
    golden: Suite
    spec: EvaluationSpec
    answers: dict[str, list[str]]


@pytest.fixture(scope="module")
def adapter(
    tiny: Any, random_adapter: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A random adapter's folder and weights digest."""
    from flywheel.engine.adapters import read_adapter

    folder = random_adapter(tmp_path_factory.mktemp("adapter"), seed=5)
    return folder, read_adapter(folder).weights_digest


@pytest.fixture(scope="module")
def solo(tiny: Any, fp32: Any, adapter: tuple[Path, str]) -> dict[str, list[str]]:
    """What base and adapter answer to each prompt alone, by the engine's blocking call."""
    from flywheel.engine.engine import Engine
    from flywheel.engine.sampling import SamplingParams
    from flywheel.models import load_tokenizer

    tokenizer = load_tokenizer(tiny)
    with Engine(tiny, fp32, max_rows=1) as engine:
        engine.load_adapter("a", adapter[0])
        return {
            role: [
                engine.generate(
                    tokenizer.encode_prompt(with_prompt(messages(n), "Be brief.")),
                    SamplingParams(max_tokens=TOKENS),
                    adapter=name,
                ).text
                for n in range(14)
            ]
            for role, name in (("champion", None), ("candidate", "a"))
        }


@pytest.fixture
def world(
    make_deployment: Callable[..., Any], tiny: Any, adapter: tuple[Path, str], solo: dict[str, list[str]]
) -> Callable[..., World]:
    """``world(name="w", wave=3)`` -> World: the candidate is right on even items, the champion on every third."""

    def make(name: str = "w", wave: int = 3) -> World:
        deployment = make_deployment(name, compute={"dtype": "float32", "threads": 1})
        folder, weights = adapter
        (deployment.home.checkpoints / weights).symlink_to(folder)
        base = {"name": "tiny"} | {
            part: getattr(tiny, part) for part in ("weights_digest", "tokenizer_digest", "template_digest")
        }
        sampling = {"max_tokens": TOKENS, "temperature": 1.0, "top_p": 1.0}
        champion = Served(digest("c"), "support_router@c", base, None, "Be brief.", sampling)
        candidate = Served(digest("d"), "support_router@d", base, weights, "Be brief.", sampling)
        items = []
        for n in range(14):
            label = solo["candidate"][n] if n % 2 == 0 else solo["champion"][n] if n % 3 == 0 else "no such answer"
            items.append(make_item(f"origin-{n}", f"talk-{n}", messages(n), None, label, cluster=n, novel=n != 13))
        gate, golden = (
            make_suite(deployment.task, "gate", items[:10]),
            make_suite(deployment.task, "golden", items[10:]),
        )
        for suite in (gate, golden):
            write_suite(deployment.home, suite)
        spec = make_spec(
            deployment.config,
            deployment.home,
            deployment.task,
            champion=champion,
            candidate=candidate,
            pointer_version=4,
            gate=gate.digest,
            golden=golden.digest,
            loop_id=f"{deployment.task}/1",
        ).model_copy(update={"wave": wave})
        return World(deployment, champion, candidate, gate, golden, spec, solo)

    return make


def test_scores_are_those_of_each_release_answering_alone(world: Callable[..., World]) -> None:
    w = world()
    result = run(w.spec)
    scores = load_scores(w.deployment.home, result["evaluation"])
    assert w.answers["champion"] != w.answers["candidate"]
    for suite, column in ((w.gate, scores.gate), (w.golden, scores.golden)):
        for role in ("champion", "candidate"):
            expected = []
            for item in suite.items:
                said = normalise_answer(w.answers[role][int(item.interaction_id.removeprefix("origin-"))])
                expected.append(int(bool(said) and said == normalise_answer(item.label)))
            assert getattr(column, role) == expected, role
    assert sum(scores.gate.candidate) > sum(scores.gate.champion)
    assert scores.gate.slices == [item.slice for item in w.gate.items]
    assert (scores.pointer_version, scores.gate.suite, scores.golden.suite) == (4, w.gate.digest, w.golden.digest)
    assert result["summary"]["suites"] == {"gate": w.gate.digest, "golden": w.golden.digest}
    assert result["summary"]["gate"]["candidate"]["accuracy"] == pytest.approx(sum(scores.gate.candidate) / 10)
    assert 0 <= result["summary"]["gate"]["champion"]["macro_f1"] <= 1


def test_a_finished_evaluation_is_returned_not_rolled_again(world: Callable[..., World]) -> None:
    w = world()
    first = run(w.spec)
    stamp = scores_path(w.deployment.home, first["evaluation"]).stat().st_mtime_ns
    lines: list[str] = []
    assert run_spec(w.spec.model_dump(mode="json"), lines.append) == first
    assert lines == [f"already evaluated: {first['evaluation'][:12]}"]
    assert scores_path(w.deployment.home, first["evaluation"]).stat().st_mtime_ns == stamp
    assert finished(w.spec) == first


def test_a_damaged_score_file_is_made_again_with_the_same_digest(world: Callable[..., World]) -> None:
    w = world()
    first = run(w.spec)
    scores_path(w.deployment.home, first["evaluation"]).write_text("{}")
    assert finished(w.spec) is None
    assert run(w.spec)["evaluation"] == first["evaluation"]


def test_two_homes_agree_on_every_digest(world: Callable[..., World]) -> None:
    one, two = world("one"), world("two")
    assert one.spec.input_digest() == two.spec.input_digest()
    assert run(one.spec)["evaluation"] == run(two.spec)["evaluation"]


def test_a_killed_evaluation_goes_on_at_a_waves_border_to_the_same_digest(
    world: Callable[..., World],
) -> None:
    undisturbed, w = world("undisturbed", wave=2), world("killed", wave=2)
    child = start(w.spec)
    try:
        wait_for(lambda: len(waves(w.spec)) >= 3, child)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    kept = {path: path.stat().st_mtime_ns for path in waves(w.spec)}
    assert finished(w.spec) is None and kept
    seen: list[str] = []

    def watch(line: str) -> None:
        seen.append(line)
        assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items() if path.exists())

    again = run_spec(w.spec.model_dump(mode="json"), watch)
    assert again["evaluation"] == run(undisturbed.spec)["evaluation"]
    assert seen and not waves(w.spec)


def test_half_a_wave_counts_for_nothing(world: Callable[..., World]) -> None:
    w = world()
    w.spec.folder.mkdir(parents=True)
    half = {"suite": w.gate.digest, "release": w.champion.digest, "answers": ["a"]}
    (w.spec.folder / "wave-champion-gate-000000.json").write_text(json.dumps(half))
    (w.spec.folder / "wave-champion-gate-000003.json").write_text('{"answers": [')
    assert run(w.spec)["evaluation"] == run(world("clean").spec)["evaluation"]


def test_score_files_and_summaries_hold_no_text_and_no_origin(world: Callable[..., World]) -> None:
    w = world()
    result = run(w.spec)
    written = scores_path(w.deployment.home, result["evaluation"]).read_text() + json.dumps(result)
    for item in w.gate.items + w.golden.items:
        for private in (item.item_id, item.interaction_id, item.conversation_id, item.messages[0]["content"]):
            assert private not in written
        assert json.dumps(item.label) not in written
    assert not any(json.dumps(said) in written for said in w.answers["champion"] + w.answers["candidate"])
    left = {path.name for path in w.spec.folder.iterdir()}
    assert left <= {"result.json", "spec.json"}


def test_the_rows_of_a_wave_start_together(
    world: Callable[..., World], tiny: Any, fp32: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first rows decode alone until the last have come, and which rows share a batch is up to the clock."""
    from flywheel.engine.engine import READ_TOKENS_PER_STEP, Engine
    from flywheel.models import load_tokenizer

    submit = Engine.submit

    def slowly(self: Engine, *args: Any, **options: Any) -> Any:
        time.sleep(0.05)  # time for several steps, were the engine not to wait
        return submit(self, *args, **options)

    monkeypatch.setattr(Engine, "submit", slowly)
    w = world()
    with Engine(tiny, fp32, max_rows=5) as engine:
        answers = evaluate(
            engine,
            load_tokenizer(tiny),
            w.spec.champion,
            [w.gate],
            adapter_folder=None,
            wave=5,
            resume_folder=tmp_path,
        )
        found = engine.stats()
    assert len(answers[0]) == 10
    reading = found["prompt_tokens"] // READ_TOKENS_PER_STEP + 1
    assert found["steps"] <= 2 * (TOKENS - 1) + reading  # two waves; reading a prompt gives its first token


def test_an_engine_that_fails_over_an_item_is_named_without_what_it_says(
    world: Callable[..., World], tiny: Any, fp32: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flywheel.engine.engine import Engine
    from flywheel.engine.forwards import Forwards
    from flywheel.models import load_tokenizer

    w = world()

    def fail(*_args: Any, **_options: Any) -> Any:
        raise ValueError(f"cannot read {w.gate.items[0].messages}")

    monkeypatch.setattr(Forwards, "read", fail)
    with Engine(tiny, fp32) as engine, pytest.raises(EvaluationError, match="ValueError at ") as caught:
        evaluate(
            engine,
            load_tokenizer(tiny),
            w.spec.champion,
            [w.gate],
            adapter_folder=None,
            wave=5,
            resume_folder=tmp_path,
        )
    shown = "".join(traceback.format_exception(caught.value))
    assert "cannot read" not in shown and str(w.gate.items[0].messages[0]["content"]) not in shown


def test_a_prompt_change_alone_can_be_evaluated(world: Callable[..., World]) -> None:
    w = world()
    wordy = replace(w.champion, digest=digest("e"), system_prompt="Zzz zzz zzz zzz!")
    spec = w.spec.model_copy(update={"candidate": w.spec.champion.of(wordy)})
    scores = load_scores(w.deployment.home, run(spec)["evaluation"])
    assert scores.gate.champion != scores.gate.candidate


def test_prompts_that_leave_no_room_are_wrong_for_both_and_counted(world: Callable[..., World]) -> None:
    w = world()
    short = w.spec.model_copy(update={"max_context": 24})
    result = run(short)
    assert result["summary"]["gate"]["champion"]["too_long"] == 10
    assert sum(load_scores(w.deployment.home, result["evaluation"]).gate.candidate) == 0


def test_weights_that_are_not_the_releases_are_refused(world: Callable[..., World], random_adapter: Any) -> None:
    w = world()
    wrong = digest("other weights")
    random_adapter(w.deployment.home.checkpoints / wrong, seed=6)
    other = replace(w.candidate, checkpoint=wrong)
    with pytest.raises(EvaluationError, match="the weights have digest"):
        run(w.spec.model_copy(update={"candidate": w.spec.champion.of(other)}))


def test_another_base_than_the_releases_is_refused(world: Callable[..., World]) -> None:
    w = world()
    other = replace(w.champion, base=w.champion.base | {"tokenizer_digest": digest("x")})
    with pytest.raises(EvaluationError, match="tokenizer_digest"):
        run(w.spec.model_copy(update={"champion": w.spec.champion.of(other)}))


def test_planning_and_judging_load_no_torch() -> None:
    modules = "flywheel.gate, flywheel.evaluation.suites, flywheel.evaluation.runner, flywheel.evaluation.spec"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'evaluate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_wrong_spec_names_its_fields() -> None:
    with pytest.raises(ConfigError, match="champion: Field required"):
        run_spec({"kind": "evaluate", "task": "t"}, lambda line: None)


def test_the_input_digest_covers_content_only(world: Callable[..., World]) -> None:
    spec = world().spec
    same = {"home": Path("/elsewhere"), "loop_id": None, "dtype": "bfloat16", "threads": 7}
    assert spec.model_copy(update=same).input_digest() == spec.input_digest()
    for change in ({"pointer_version": 5}, {"gate": "0" * 64}, {"golden": "0" * 64}, {"wave": 4}, {"max_context": 99}):
        assert spec.model_copy(update=change).input_digest() != spec.input_digest(), change


def test_the_first_recorded_result_of_equal_inputs_stands(world: Callable[..., World]) -> None:
    w = world()
    d = w.deployment
    result = run(w.spec)
    assert registered_evaluation(d.registry, d.home, w.spec.input_digest()) is None
    assert register_evaluation(d.registry, w.spec, result) == result["evaluation"]
    rolled = result | {"evaluation": digest("another machine's rounding")}
    assert register_evaluation(d.registry, w.spec, rolled) == result["evaluation"]
    found = registered_evaluation(d.registry, d.home, w.spec.input_digest())
    assert found is not None and found["evaluation"] == result["evaluation"]
    with d.registry.read() as tx:
        (row,) = tx.rows(sa.select(schema.evaluations))
    assert (row["champion"], row["candidate"], row["loop_id"]) == (
        w.champion.digest,
        w.candidate.digest,
        w.spec.loop_id,
    )


def messages(n: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{'abcdefghijklmn'[n] * (n + 1)} number {n * n}"}]


def run(spec: EvaluationSpec) -> dict[str, Any]:
    return run_spec(spec.model_dump(mode="json"), lambda line: None)


def waves(spec: EvaluationSpec) -> list[Path]:
    return sorted(spec.folder.glob("wave-*.json"))


def start(spec: EvaluationSpec) -> subprocess.Popen[bytes]:
    """The evaluation in a process of its own, slowed down a little so that it can be killed on the way."""
    code = (
        "import json, sys, time; from pathlib import Path; from flywheel.evaluation import waves, runner\n"
        "write = waves.write_json\n"
        "def slowly(path, value):\n    write(path, value); time.sleep(0.3)\n"
        "waves.write_json = slowly\n"
        "runner.run_spec(json.loads(Path(sys.argv[1]).read_text()), lambda line: None)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(spec.write())])


def wait_for(ready: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        assert child.poll() is None, "the child ended before it could be killed"
        assert time.monotonic() < deadline, "the child took too long"
        time.sleep(0.05)
