"""Recipes and runs: short loops over the engine's primitives, run in a child process that can die and go on."""
