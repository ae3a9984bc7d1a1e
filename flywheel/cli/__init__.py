"""The ``flywheel`` command: one module per noun, heavy imports inside the commands so that ``--help`` is quick."""
