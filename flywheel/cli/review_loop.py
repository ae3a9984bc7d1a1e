"""From keys to labels: shows one item after the other and does what the reviewer says about it, until they quit."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.console import Console

from flywheel.cli.keyboard import END, Keys
from flywheel.cli.review_screen import draw_finished, draw_item
from flywheel.cli.review_sitting import CHOICE_KEYS, Sitting
from flywheel.cli.shared import printable
from flywheel.errors import RequestError

QUIT = ("q", END)


def review_all(sitting: Sitting, keys: Keys, console: Console) -> None:
    """Review until the reviewer quits; at once when nothing waits at all.

    Raises RequestError when there is no gateway to begin with. What it refuses later is shown, and the item stays.
    """
    if sitting.item() is None:
        console.print("nothing waits for review")
        return
    note, whole = "", False
    while True:
        try:
            item = sitting.item()
        except RequestError as error:
            item, note = None, error.message
        if item is None:
            draw_finished(console, sitting, note)
        else:
            draw_item(console, sitting, item, whole=whole, note=note)
        key = keys.key()
        if key in QUIT:
            return
        try:
            if item is None:
                note = _undone(sitting) if key == "u" else ""
            else:
                note, whole = _Answering(sitting, keys, console, whole).do(key)
        except RequestError as error:
            note = f"not stored: {error.message}"


class _Answering:
    """What the keys mean while an item is on the screen."""

    def __init__(self, sitting: Sitting, keys: Keys, console: Console, whole: bool) -> None:
        self.sitting, self.keys, self.console, self.whole = sitting, keys, console, whole
        self.item = sitting.ahead[0]

    def do(self, key: str) -> tuple[str, bool]:
        """Do what a key says. Returns a note for the next screen, and whether that shows all of every text."""
        sitting = self.sitting
        if (choice := _choice(key, sitting.choices)) is not None:
            sitting.answer(choice)
        elif key == "y":
            sitting.right()
        elif key == "n":
            self._wrong()
        elif key == "e":
            self._typed(self.item["answer"])
        elif key == "s":
            sitting.skip()
        elif key == "u":
            return _undone(sitting), False
        elif key == "+":
            return "", not self.whole
        else:
            return f"{printable(key)!r} is none of the keys", self.whole
        return "", False

    def _wrong(self) -> None:
        """Ask what would have been right; a key that is none of those asked for leads back to the item."""
        if not self.sitting.choices:
            self._typed("", otherwise=self.sitting.wrong)
            return
        draw_item(self.console, self.sitting, self.item, whole=self.whole, asking=True)
        key = self.keys.key()
        if (choice := _choice(key, self.sitting.choices)) is not None:
            self.sitting.answer(choice)
        elif key == "n":
            self.sitting.wrong()
        elif key == "e":
            self._typed(self.item["answer"])

    def _typed(self, text: str, otherwise: Callable[[], None] | None = None) -> None:
        """Label the item with what is typed. Nothing typed leads back to the item, or says ``otherwise``."""
        nothing = "to go back" if otherwise is None else "if you cannot say"
        self.console.print(
            f"The right answer (\\n is a new line, \\\\ a backslash; Enter alone {nothing}):", markup=False
        )
        typed = self.keys.line(one_line(text))
        if typed is not None and typed.strip():
            self.sitting.answer(many_lines(typed).strip())
        elif typed is not None and otherwise is not None:
            otherwise()


def _undone(sitting: Sitting) -> str:
    return "" if sitting.undo() else "there is nothing to undo"


def _choice(key: str, choices: list[str]) -> str | None:
    place = CHOICE_KEYS.find(key) if len(key) == 1 else -1
    return choices[place] if 0 <= place < len(choices) else None


def one_line(text: str) -> str:
    """A text as one line for a person to edit, of which no control character reaches the terminal."""
    return printable(text.replace("\\", "\\\\")).replace("\n", "\\n")


def many_lines(line: str) -> str:
    """The text that `one_line` gave, perhaps edited; a backslash that begins nothing of the kind stays one."""
    return _WRITTEN_OUT.sub(lambda found: _meant(found[0]), line)


_WRITTEN_OUT = re.compile(r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U000[0-9a-f]{5}|U0010[0-9a-f]{4})")
_SHORT = {"\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}


def _meant(written: str) -> str:
    return _SHORT.get(written) or chr(int(written[2:], 16))
