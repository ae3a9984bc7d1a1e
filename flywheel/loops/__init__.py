"""Turns of the wheel: who may run one, and the six stages in order. Assets and the command line call these."""
