"""Asset ``evaluation`` and its check ``gate``: champion and candidate on the same items, and the verdict on it."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.children import run_piped
from assets.deployment import Deployment
from assets.metadata import name_of, numbers, table
from assets.steps import loop_step
from flywheel.gate import Decision, card, comparison_rows
from flywheel.loops.claims import finish
from flywheel.loops.evaluation import finish_evaluation, plan_evaluation


def evaluation(task: str) -> dg.AssetsDefinition:
    """The asset of one task with its check."""
    key = dg.AssetKey([task, "evaluation"])

    @dg.multi_asset(
        name=f"{task}__evaluation",
        specs=[
            dg.AssetSpec(
                key,
                deps=[dg.AssetKey([task, "candidate"])],
                group_name=task,
                kinds={"torch"},
                description=(
                    "Scores of champion and candidate on the gate and golden suites, from one run, and the decision "
                    "record made of them. The check `gate` shows the stored verdict; it decides nothing."
                ),
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                "gate",
                asset=key,
                blocking=True,
                description="Passes when the stored decision says promote. Broken evidence is an error.",
            )
        ],
    )
    def _evaluation(context: dg.AssetExecutionContext, deployment: Deployment) -> Iterator[Any]:
        with loop_step(context, deployment, task) as ctx:
            plan = plan_evaluation(ctx)
            if plan.reused:
                context.log.info("the same evaluation has finished before; it is reused, never rolled again")
            else:
                run_piped(context, plan.spec_path)
            result = finish_evaluation(ctx, plan)
            decision = result.decision
            if decision.verdict == "invalid":
                # The blocking check keeps `champion` from running; another attempt would find the same evidence.
                finish(ctx.registry, ctx.lease, decision.verdict, decision.reasons)
        rows = comparison_rows(decision.record)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={
                "loop": ctx.lease.loop_id,
                "comparison": table(rows),
                "decision_card": dg.MetadataValue.md(card(decision)),
                **numbers(decision.record["numbers"].get("gate", {}), "gate/"),
                **numbers(decision.record["numbers"].get("golden", {}), "golden/"),
                "evaluation": name_of(result.digest),
                "decision": name_of(decision.digest),
                "reused": plan.reused,
            },
            data_version=dg.DataVersion(result.digest),
        )
        yield gate_result(key, decision, rows)

    return _evaluation


def gate_result(key: dg.AssetKey, decision: Decision, rows: list[dict[str, Any]]) -> dg.AssetCheckResult:
    """The stored verdict as a check: broken evidence is an error, "not better" a warning on a normal day."""
    broken = decision.verdict == "invalid"
    return dg.AssetCheckResult(
        check_name="gate",
        asset_key=key,
        passed=decision.verdict == "promote",
        severity=dg.AssetCheckSeverity.ERROR if broken else dg.AssetCheckSeverity.WARN,
        description=f"{decision.verdict}: {'; '.join(decision.reasons)}",
        metadata={
            "verdict": decision.verdict,
            "decision": name_of(decision.digest),
            "comparison": table(rows),
            **numbers(decision.record["numbers"].get("gate", {}), "gate/"),
            **numbers(decision.record["numbers"].get("golden", {}), "golden/"),
        },
    )
