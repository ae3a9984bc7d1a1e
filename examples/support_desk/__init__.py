"""A simulated support desk that turns the wheel: what ``make demo`` runs. Uses only the public CLI and HTTP."""
