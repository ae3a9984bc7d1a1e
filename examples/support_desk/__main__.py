"""``python -m examples.support_desk``: the whole demo, from an empty folder to a chart and a report.

Exit code 0 when everything that the demo promises was seen, 1 when not (it says what), 2 when it could not be played,
130 after Ctrl-C. ``FLYWHEEL_DEMO_DATA`` names a JSONL file of ``{"text", "label"}`` to play it on other data.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console

from examples.support_desk import chart
from examples.support_desk.client import Cli, DemoError, Gateway
from examples.support_desk.deployment import FOLDER, free_port, fresh_folder, running, wait_until_up
from examples.support_desk.ledger import Ledger
from examples.support_desk.phrases import Material, own_material
from examples.support_desk.plan import MODEL, Plan, make_plan, needs, write_config
from examples.support_desk.progress import Progress
from examples.support_desk.report import details, missed_bars, print_table, report, write_json
from examples.support_desk.simulator import Background
from examples.support_desk.story import Story, Teller
from examples.support_desk.turn import Desk
from examples.support_desk.userdata import DemoDataError, check_enough, read_rows, split_rows


def main() -> int:
    """Play the demo; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    progress = Progress()
    try:
        material = _material()
        plan = make_plan(material)
        check_enough(material, needs(plan, material))
        with fresh_folder(FOLDER) as folder:
            return _play(folder, material, plan, progress)
    except (DemoError, DemoDataError) as error:
        progress.close()
        sys.stderr.write(f"demo: {error}\n")
        return 2
    except KeyboardInterrupt:
        progress.close()
        sys.stderr.write("demo: stopped\n")
        return 130


def _material() -> Material:
    data = os.environ.get("FLYWHEEL_DEMO_DATA")
    return split_rows(read_rows(Path(data))) if data else own_material()


def _play(folder: Path, material: Material, plan: Plan, progress: Progress) -> int:
    config, log = folder / "flywheel.yaml", folder / "up.log"
    gateway_port, dagster_port = free_port(8000), free_port(3000)
    write_config(config, plan, gateway_port=gateway_port, dagster_port=dagster_port)
    ledger, story = Ledger(), Story()
    gateway, cli = Gateway(f"http://127.0.0.1:{gateway_port}", ledger), Cli(config)
    ui = f"http://127.0.0.1:{dagster_port}"

    progress.phase("Starting the gateway, the Dagster webserver and the daemon")
    cli.pull(MODEL)
    with running(config, log) as process:
        wait_until_up(process, gateway, log)
        progress.note(f"gateway {gateway.url}/v1, Dagster UI {ui}, log {log}")
        background = Background(gateway)
        desk = Desk(gateway, cli, ledger, background, progress, random.Random(0))
        teller = Teller(desk, material, plan, story)
        with background.running():
            for act in (
                teller.baseline,
                teller.first_loop,
                teller.second_loop,
                teller.poisoned_loops,
                teller.there_and_back,
            ):
                act()
        progress.phase("Stopping")
    gateway.close()
    progress.close()
    return _conclude(folder, story, ledger, progress.console, ui)


def _conclude(folder: Path, story: Story, ledger: Ledger, console: Console, ui: str) -> int:
    seconds = ledger.now()
    missed = missed_bars(story, ledger)
    write_json(folder / "report.json", report(story, ledger, seconds))
    write_json(folder / "details.json", details(story, ledger, missed))
    chart.draw(folder / "accuracy.png", ledger.samples, ledger.marks, story.baseline.value)
    print_table(console, story)
    for turn in story.turns:
        console.print(f"loop {turn.name}: {turn.loop['verdict']}", markup=False)
        for reason in turn.loop["reasons"]:
            console.print(f"    {reason}", markup=False)
    _, requests, failed = ledger.counts()
    console.print(f"{requests} requests, {failed} failed, {seconds / 60:.1f} minutes", markup=False)
    console.print(f"chart {folder / 'accuracy.png'}, figures {folder / 'report.json'}", markup=False, soft_wrap=True)
    command = f"{Path(sys.executable).parent / 'flywheel'} up --config {folder / 'flywheel.yaml'}"
    console.print(f"Look around in this very instance:  {command}   then open {ui}", markup=False, soft_wrap=True)
    for bar in missed:
        console.print(f"MISSED  {bar}", markup=False)
    return 1 if missed else 0


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
