"""Dagster assets, one module per stage. Each is a thin edge around a plain function of the library."""
