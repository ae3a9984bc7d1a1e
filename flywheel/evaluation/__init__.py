"""Evaluation: which items judge a candidate, and what champion and candidate score on them in one run."""
