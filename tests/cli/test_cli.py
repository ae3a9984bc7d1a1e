"""The command line as people and CI use it: exit codes, one line for an error, JSON for programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from flywheel.cli import up
from flywheel.cli.shared import print_table
from flywheel.config import load_config, parse_config

COMMANDS = [
    ["init"], ["up"], ["serve"], ["status"], ["train"], ["gate"], ["rollback"], ["erase"], ["loop", "run"],
    ["loop", "list"], ["loop", "show"], ["intake", "run"], ["intake", "import"], ["intake", "tail"],
    ["intake", "history"], ["intake", "backfill"], ["intake", "quarantine", "list"], ["intake", "quarantine", "show"],
    ["intake", "quarantine", "replay"], ["feedback", "add"],
    ["labels", "list"], ["labels", "verify"], ["labels", "judges"],
    ["review"], ["review", "list"], ["champion", "show"], ["champion", "history"], ["model", "pull"], ["model", "tiny"],
    ["keys", "create"], ["keys", "list"], ["keys", "revoke"], ["config", "check"], ["config", "show"],
]  # fmt: skip


@pytest.fixture
def judged(make_wheel: Any, judged_folder: Path) -> Any:
    """A wheel with one loop that was judged `promote`."""
    return make_wheel(like=judged_folder)


def test_help_names_every_command(flywheel: Any) -> None:
    shown = flywheel("--help")
    assert shown.code == 0
    assert all(words[0] in shown.out for words in COMMANDS)
    for words in COMMANDS:
        page = flywheel(*words, "--help")
        assert (page.code, page.err) == (0, "") and words[-1] in page.out


@pytest.mark.parametrize("words", [w for w in COMMANDS if w[-1] in ("list", "history", "status", "show")])
def test_every_command_that_lists_has_json(flywheel: Any, words: list[str]) -> None:
    assert "--json" in flywheel(*words, "--help").out


def test_init_writes_a_valid_configuration_with_comments_that_shows_the_defaults(flywheel: Any) -> None:
    assert flywheel("init", "--task", "router", "--base", "tiny").code == 0
    text = Path("flywheel.yaml").read_text()
    assert text.count("#") > 10
    config = load_config(Path("flywheel.yaml"))
    plain = parse_config({"tasks": {"router": {"base": "tiny"}}}, Path("flywheel.yaml").absolute())
    assert config == plain, "the example shows what is in force without it"


def test_init_leaves_an_existing_file_alone(flywheel: Any) -> None:
    Path("flywheel.yaml").write_text("mine")
    failed = flywheel("init")
    assert (failed.code, failed.out) == (2, "")
    assert failed.err == "error: flywheel.yaml exists; remove it first, or give another path\n"
    assert Path("flywheel.yaml").read_text() == "mine"


def test_config_check_says_what_is_wrong_where(flywheel: Any) -> None:
    Path("flywheel.yaml").write_text("tasks: {router: {base: tiny, trian: {lr: 1}}}")
    failed = flywheel("config", "check")
    assert failed.code == 2
    assert failed.err.startswith("error: ") and "tasks.router.trian: unknown key; did you mean `train`?" in failed.err
    Path("flywheel.yaml").write_text("tasks: {router: {base: tiny}}")
    assert "valid, 1 task(s): router" in flywheel("config", "check").out


def test_config_check_reads_the_files_that_the_configuration_names(flywheel: Any) -> None:
    Path("flywheel.yaml").write_text(
        "tasks: {router: {base: tiny, logs: [later.jsonl], suites: {golden_file: golden.jsonl}}}"
    )
    Path("golden.jsonl").write_text('{"text": "where is it?", "label": "orders"}\n{"text": "no label"}\n')
    failed = flywheel("config", "check")
    assert failed.code == 2 and "golden.jsonl, line 2: expected an object with a non-empty string `label`" in failed.err
    Path("golden.jsonl").write_text('{"text": "where is it?", "label": "orders"}\n')
    checked = flywheel("config", "check")
    assert checked.code == 0 and "router: 1 golden items in" in checked.out
    assert "later.jsonl yet" in checked.err


def test_config_show_gives_what_was_said_or_all_that_is_in_force(flywheel: Any) -> None:
    Path("flywheel.yaml").write_text("tasks: {router: {base: tiny}}")
    said, effective = flywheel("config", "show"), flywheel("config", "show", "--effective")
    assert yaml.safe_load(said.out)["tasks"] == {"router": {"base": "tiny"}} or "logs" in said.out
    assert yaml.safe_load(effective.out)["tasks"]["router"]["gate"]["alpha"] == 0.05
    assert flywheel("config", "show", "--effective", "--json").json == yaml.safe_load(effective.out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["status"], "flywheel.yaml: no such file; run `flywheel init` to make one"),
        (
            ["champion", "show", "--task", "router", "-c", "broken.yaml"],
            "broken.yaml: expected a mapping with `tasks:`",
        ),
        (["loop", "list", "--task", "other", "-c", "good.yaml"], "unknown task 'other'; flywheel.yaml defines: router"),
        (["loop", "show", "router/7", "-c", "good.yaml"], "router/7: no such loop"),
        (["rollback", "--task", "router", "-c", "good.yaml"], "router"),
        (["intake", "import", "none.jsonl", "-t", "router", "-c", "good.yaml"], "none.jsonl: no such file"),
        (["keys", "revoke", "key-1", "-c", "good.yaml"], "key-1"),
        (["model", "pull", "no/such-model"], "no/such-model"),
        (["config", "check", "-c", "."], "Is a directory"),
        (["init", "none/flywheel.yaml"], "none/flywheel.yaml: No such file or directory"),
        (["model", "tiny", "good.yaml/tiny"], "good.yaml/tiny: Not a directory"),
        (["status", "-c", "unknown_database.yaml"], "cannot open the registry that `registry` in flywheel.yaml names"),
        (["status", "-c", "no_database.yaml"], "no_database/registry.db: file is not a database"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_an_error_is_one_line_on_stderr_and_exit_code_2(flywheel: Any, words: list[str], message: str) -> None:
    Path("good.yaml").write_text("tasks: {router: {base: tiny}}")
    Path("broken.yaml").write_text("just text")
    Path("unknown_database.yaml").write_text("registry: 'foo://me:secret@x'\ntasks: {router: {base: tiny}}")
    Path("no_database.yaml").write_text("home: no_database\ntasks: {router: {base: tiny}}")
    Path("no_database").mkdir()
    Path("no_database/registry.db").write_bytes(bytes(range(256)) * 16)
    failed = flywheel(*words)
    assert failed.code == 2
    assert failed.out == ""
    line = failed.err.splitlines()[-1]
    assert line.startswith("error: ") and message in line
    assert "Traceback" not in failed.err and "secret" not in failed.err


def test_what_customers_wrote_cannot_break_or_steer_the_reviewers_table(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[/bold] [red]x[/red] :smile: \x1b[31mred\x1b]0;title\x07\rover\u202eabc\nnext"
    print_table("[/t]: waiting", [{"message": hostile}], empty="")
    print_table("", [], empty="[/nothing]")
    shown = capsys.readouterr().out
    assert "[/bold] [red]x[/red] :smile: \\x1b[31mred\\x1b]0;title\\x07\\rover\\u202eabc" in shown
    assert "[/t]: waiting" in shown and "[/nothing]" in shown
    assert not set("\x1b\x07\r\u202e") & set(shown)


def test_the_id_that_a_reviewer_copies_is_not_broken_over_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = {"interaction": "chatcmpl-" + "0" * 32, "message": "long " * 50, "answer": "words " * 20}
    print_table("", [row], empty="", whole="interaction")
    assert row["interaction"] in capsys.readouterr().out


def test_tables_fit_80_columns(flywheel: Any, judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert flywheel("loop", "run", "-t", judged.task, "-c", judged.path).code == 0
    shown = flywheel("champion", "history", "-t", judged.task, "-c", judged.path).out
    assert "│ 2       │ promote │ " in shown, "no heading or cell is broken over lines"
    assert len(shown.splitlines()) == 7


def test_no_champion_leaves_standard_output_to_programs(flywheel: Any) -> None:
    Path("flywheel.yaml").write_text("tasks: {router: {base: tiny}}")
    shown = flywheel("champion", "show", "-t", "router", "--json")
    assert (shown.code, shown.out) == (1, "") and "no champion yet" in shown.err


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "flywheel.yaml").write_text("tasks: {router: {base: tiny}}")
    command = f"{sys.executable} -m flywheel.cli.__main__ config show --effective | true"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize("section", ["gateway", "dagster"])
def test_up_refuses_a_port_that_somebody_else_has(flywheel: Any, monkeypatch: pytest.MonkeyPatch, section: str) -> None:
    monkeypatch.setattr(up, "PORT_WAIT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"gateway": {"port": 0}, "dagster": {"port": 0}} | {section: {"port": port}}
        Path("flywheel.yaml").write_text(yaml.safe_dump(ports | {"tasks": {"router": {"base": "tiny"}}}))
        refused = flywheel("up")
    assert (refused.code, refused.out) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port}: " in refused.err and f"choose another {section}.port" in refused.err


def test_a_wrong_option_is_explained_and_exits_2(flywheel: Any) -> None:
    failed = flywheel("status", "--jsno")
    assert (failed.code, failed.out) == (2, "")
    assert "--json" in failed.err


def test_the_installed_command_prints_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flywheel.cli.__main__", "status"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_status_and_history_tell_programs_what_happened(flywheel: Any, judged: Any) -> None:
    state = flywheel("status", "--json", "-c", judged.path).json["tasks"][judged.task]
    before = judged.champion()
    assert state["champion"]["release"] == before.release
    assert (state["last_seq"], state["pending_labels"], state["min_labels"]) == (200, 200, 60)
    assert [(loop["loop_id"], loop["state"], loop["attempt"]) for loop in state["loops"]] == [
        ("support_router/1", "claimed", 2)
    ]

    view = flywheel("loop", "run", "-t", judged.task, "--json", "-c", judged.path).json
    assert (view["loop_id"], view["verdict"]) == ("support_router/1", "promote")
    moves = flywheel("champion", "history", "-t", judged.task, "--json", "-c", judged.path).json
    assert [(move["version"], move["kind"], move["release"]) for move in moves] == [
        (1, "initial", before.release),
        (2, "promote", view["candidate"]),
    ]
    shown = flywheel("champion", "show", "-t", judged.task, "--json", "-c", judged.path).json
    assert shown["decision"]["verdict"] == "promote"
    report = flywheel("rollback", "-t", judged.task, "--json", "-c", judged.path).json
    assert (report["release"], report["version"]) == (before.release, 3)
    state = flywheel("status", "--json", "-c", judged.path).json["tasks"][judged.task]
    assert (state["champion"]["version"], state["pending_labels"]) == (3, 0)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["loop", "list", "-t", "support_router"],
        ["loop", "show", "support_router/1"],
        ["champion", "history", "-t", "support_router"],
        ["review", "list", "-t", "support_router"],
    ],
)
def test_people_get_tables(flywheel: Any, judged: Any, words: list[str]) -> None:
    shown = flywheel(*words, "-c", judged.path)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.strip()


@pytest.mark.parametrize(("verdict", "code"), [("promote", 0), ("reject", 1), ("inconclusive", 2), ("invalid", 3)])
def test_the_gates_exit_code_is_the_verdict_and_nothing_is_promoted(
    flywheel: Any, judged: Any, redecide: Any, verdict: str, code: int
) -> None:
    redecide(judged, verdict=verdict, reasons=["said the gate"])
    candidate, before = judged.loop()["candidate"], judged.champion()
    ran = flywheel("gate", "-t", judged.task, "--candidate", candidate[:12], "--json", "-c", judged.path)
    assert ran.code == code, ran.err
    assert (ran.json["verdict"], ran.json["reasons"]) == (verdict, ["said the gate"])
    assert judged.champion() == before


def test_the_gates_exit_code_for_no_verdict_is_none_of_the_verdicts(flywheel: Any, judged: Any) -> None:
    for candidate in ("f" * 12, judged.champion().release):
        failed = flywheel("gate", "-t", judged.task, "--candidate", candidate, "-c", judged.path)
        assert (failed.code, failed.out) == (4, "")
        assert failed.err.startswith("error: ") and failed.err.count("\n") == 1


def test_feedback_without_a_gateway_is_on_disk_and_joins_at_the_next_intake(
    flywheel: Any, make_wheel: Any, traffic_of: Any
) -> None:
    wheel = make_wheel()
    traffic = traffic_of(wheel.home)
    traffic.write(traffic.call(1))
    about = ["-t", wheel.task, "--interaction", traffic.call_id(1), "-c", wheel.path]
    added = flywheel("feedback", "add", *about, "--kind", "correction", "--text", "billing", "--author", "u1")
    assert added.code == 0, added.err
    assert added.out.startswith("fb-")
    thumb = flywheel("feedback", "add", *about, "--kind", "thumb", "--value", "up")
    assert thumb.code == 0, thumb.err
    read = flywheel("intake", "run", "-t", wheel.task, "--json", "-c", wheel.path).json
    (source,) = read["sources"]
    assert (source["read"], source["kept"], read["labels"]["total"]) == (3, 3, 1)
    wrong = flywheel("feedback", "add", *about, "--kind", "applause")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error: ")


def test_intake_import_exits_2_when_more_than_a_twentieth_is_lost_and_keeps_the_rest(
    flywheel: Any, make_wheel: Any, traffic_of: Any, tmp_path: Path
) -> None:
    wheel = make_wheel()
    traffic = traffic_of(wheel.home)
    where = ["-t", wheel.task, "--json", "-c", wheel.path]
    good = [json.dumps(traffic.call(number)) for number in range(95)]

    def ran(name: str, lines: list[str]) -> Any:
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return flywheel("intake", "import", tmp_path / name, *where)

    fine = ran("fine.jsonl", [*good, *["broken"] * 5])
    assert (fine.code, fine.json["kept"], fine.json["quarantined"]) == (0, 95, 5)
    again = ran("again.jsonl", good)
    assert (again.code, again.json["duplicate"]) == (0, 95), "duplicates are not lost"
    more = [json.dumps(traffic.call(number)) for number in range(200, 210)]
    lost = ran("lost.jsonl", [*more, "broken"])
    assert (lost.code, lost.json["kept"], lost.json["quarantined"]) == (2, 10, 1)
    assert "1 of 11 records are in quarantine" in lost.err


def test_up_stopped_while_it_starts_ends_everything_it_began(make_wheel: Any) -> None:
    wheel = make_wheel()
    up = _up(wheel, "--no-dagster")
    assert up.stderr is not None and "starting" in up.stderr.readline()
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=30) == 0
    assert up.stderr.read().endswith("stopped\n")
    assert not _processes_of(wheel)


@pytest.mark.slow
def test_up_runs_gateway_webserver_and_daemon_until_one_ctrl_c(make_wheel: Any) -> None:
    wheel = make_wheel()
    raw = yaml.safe_load(wheel.path.read_text())
    raw["gateway"]["port"], raw["dagster"] = _free_port(), {"port": _free_port()}
    wheel.path.write_text(yaml.safe_dump(raw))
    up = _up(wheel)
    assert up.stderr is not None
    lines = iter(up.stderr.readline, "")
    assert any("Ctrl-C stops all of it" in line for line in lines)
    assert len(_processes_of(wheel)) >= 3
    second = subprocess.run(_command(wheel), capture_output=True, text=True, timeout=60)
    assert second.returncode == 2 and "another `flywheel up` of this home" in second.stderr
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=60) == 0
    up.stderr.close()
    assert not _processes_of(wheel)


def _command(wheel: Any, *options: str) -> list[str]:
    return [sys.executable, "-m", "flywheel.cli.__main__", "up", "--config", str(wheel.path), *options]


def test_ctrl_c_before_up_has_started_anything_prints_no_traceback(make_wheel: Any) -> None:
    wheel = make_wheel()
    raw = yaml.safe_load(wheel.path.read_text())
    raw["gateway"]["port"], raw["dagster"] = 0, {"port": 0}
    wheel.path.write_text(yaml.safe_dump(raw))
    up = _up(wheel)
    ready = Path(wheel.config.home) / "dagster/workspace.yaml"
    deadline = time.monotonic() + 30
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)  # now a child process looks for runs that died
    os.killpg(up.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
    _, said = up.communicate(timeout=60)
    assert up.returncode in (0, 130)
    assert "Traceback" not in said


def _up(wheel: Any, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(_command(wheel, *options), stderr=subprocess.PIPE, text=True, start_new_session=True)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _processes_of(wheel: Any) -> list[str]:
    """Command lines of live processes that work for a wheel, once those that were just killed are gone."""
    for _ in range(20):
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            try:
                environment = (process / "environ").read_bytes()
                if str(wheel.path).encode() in environment:
                    found.append((process / "cmdline").read_bytes().decode().replace("\0", " "))
            except OSError:
                continue
        if not found:
            break
        time.sleep(0.1)
    return found
