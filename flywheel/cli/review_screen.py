"""How a review looks in the terminal: the conversation, the answer, the keys. At any width, and steered by no text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from flywheel.cli.review_sitting import CHOICE_KEYS, Sitting
from flywheel.cli.shared import printable

WHY = {"audit": "audit sample", "disagreement": "feedback disagrees"}
ITEM_KEYS = "y right   n wrong   e edit   s skip   u undo   + all of it   q quit"
ASKING_KEYS = "What is right? Its key, e to type it, n if you cannot say, Enter to go back"
FINISHED_KEYS = "u undo   q quit   Enter looks again"

ROLE_WIDTH = 10
EARLIER, EARLIER_LINES, MESSAGE_LINES = 3, 4, 16
"""What is shown until all is asked for: earlier messages, lines of each, lines of the last message and the answer."""


def draw_item(
    console: Console, sitting: Sitting, item: dict[str, Any], *, whole: bool, asking: bool = False, note: str = ""
) -> None:
    """Show an item, on a cleared screen where there is one.

    Args:
        whole: show all of every text.
        asking: the right answer is asked for.
        note: what to tell besides.
    """
    console.clear()
    place = f"{len(sitting.past) + 1} of {sitting.total}{'+' if sitting.more else ''}"
    why = printable(WHY.get(item["why"], item["why"]))
    console.print(Text(f"{sitting.task}   {place}, {sitting.today} labelled today   {why}"))
    console.print(Rule(style="dim", characters="-"))
    *earlier, last = item["turns"] or [{"role": "", "text": ""}]
    if not whole and len(earlier) > EARLIER + 1:
        console.print(Text(f"... {len(earlier) - EARLIER} earlier messages, + shows them", style="dim italic"))
        earlier = earlier[-EARLIER:]
    for turn in earlier:
        _turn(console, turn["role"], turn["text"], "dim", None if whole else EARLIER_LINES)
    most = None if whole else MESSAGE_LINES
    _turn(console, last["role"], last["text"], "bold", most)
    console.print()
    _turn(console, "answer", item["answer"], "cyan", most)
    console.print()
    _choices(console, sitting.choices, item["answer"].strip())
    console.print(Text(ASKING_KEYS if asking else ITEM_KEYS, style="dim"))
    _note(console, note)


def draw_finished(console: Console, sitting: Sitting, note: str) -> None:
    """Show that nothing is left, or what keeps more from coming, and that the last step can be taken back."""
    console.clear()
    _note(console, note or "nothing waits for review" + (" but what you skipped" if sitting.skipped else ""))
    console.print(Text(FINISHED_KEYS, style="dim"))


def _turn(console: Console, role: str, text: str, style: str, most: int | None) -> None:
    """A message beside its role, folded at the console's width; lines beyond ``most`` are counted."""
    shown = Text(printable(text.replace("\r\n", "\n").expandtabs(4)) or "(no text)", style=style)
    lines = list(shown.wrap(console, max(20, console.width - ROLE_WIDTH), overflow="fold"))
    if most is not None and len(lines) > most + 1:  # one line takes no more room than the note about it
        lines = [*lines[:most], Text(f"... {len(lines) - most} more lines, + shows them", style="dim italic")]
    head = Text(printable(role).replace("\n", " "), style="dim")
    head.truncate(ROLE_WIDTH - 1)
    for line in lines:
        head.pad_right(ROLE_WIDTH - head.cell_len)
        console.print(head + line, no_wrap=True, overflow="crop")
        head = Text()


def _choices(console: Console, choices: list[str], answer: str) -> None:
    """The answers to choose from with their keys, in as many columns as fit; the model's own is coloured like it."""
    cells = [
        Text(f"{key} {printable(choice)}", style="cyan" if choice == answer else "")
        for key, choice in zip(CHOICE_KEYS, choices, strict=False)
    ]
    if not cells:
        return
    width = max(cell.cell_len for cell in cells) + 3
    rows = -(-len(cells) // max(1, console.width // width))
    for row in range(rows):
        line = Text()
        for cell in cells[row::rows]:
            cell.pad_right(width - cell.cell_len)
            line += cell
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop")
    console.print()


def _note(console: Console, note: str) -> None:
    if note:
        console.print(Text(printable(note)))
