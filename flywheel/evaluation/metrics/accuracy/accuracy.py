"""Share of predictions equal to their reference, as a module for ``evaluate.load(path)``; needs no hub."""

from __future__ import annotations

import datasets
import evaluate


class Accuracy(evaluate.Metric):  # type: ignore[misc]  # the library ships no types
    """Accuracy over strings; the caller normalises."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Share of predictions that equal their reference.",
            citation="",
            inputs_description="predictions: list of str; references: list of str of the same length",
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        return {"accuracy": sum(map(str.__eq__, predictions, references)) / len(references)}
