"""Macro F1 over the classes that occur as references, as a module for ``evaluate.load(path)``; needs no hub."""

from __future__ import annotations

from collections import Counter

import datasets
import evaluate


class MacroF1(evaluate.Metric):  # type: ignore[misc]  # the library ships no types
    """Mean over classes of 2 TP / (2 TP + FP + FN).

    A generative model may answer anything. An answer that is no reference's class counts against the class it should
    have been, but makes no class of its own, so that nonsense answers do not change what is averaged over.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="F1 per class that occurs among the references, averaged without weights.",
            citation="",
            inputs_description="predictions: list of str; references: list of str of the same length",
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        right = Counter(said for said, wanted in zip(predictions, references, strict=True) if said == wanted)
        said, wanted = Counter(predictions), Counter(references)
        scores = [2 * right[label] / (said[label] + wanted[label]) for label in wanted]
        return {"macro_f1": sum(scores) / len(scores)}
