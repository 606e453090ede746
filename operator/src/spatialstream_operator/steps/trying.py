"""Another image is tried before what runs is stopped for it: a short pod says whether there is one, and it begins.

While it is tried, and as long as it cannot be used, the rest of the reconciliation continues with the image before,
whatever else of the spec has changed. Where it cannot be tried, because no pod may be made or no node has room even for
a small one, the jobs are given it as they would be without a trial.
"""

from __future__ import annotations

from dataclasses import replace

from spatialstream_operator import manifests
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import PARTS, ReconcileContext
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.restarts import Failure, report
from spatialstream_operator.names import HASH_ANNOTATION
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.ownership import hindrance
from spatialstream_operator.steps.starting import events_of

__all__ = ["try_image"]

_WITHOUT_NODE = 60_000
"""ms after which a pod that no node has room for is given up; what it would be tried for may be what makes room."""
_AT_WORK = 120_000
"""ms that what it runs may take. How long an image takes to be pulled nobody knows."""

_IMAGE = "ImageUnusable"


async def try_image(context: ReconcileContext) -> None:
    """Go on with the trial of the image that the spec names, if jobs run with another one."""
    key = manifests.image_key(context.spec)
    if context.problem is not None or context.memory.tried == key:
        return
    before = None if context.spec.suspend else await _before(context)
    if before is None:
        await _end(context)
        context.memory.tried = key
        return
    new_spec, name = context.spec, context.names.trial
    pod = await context.environment.cluster.get("Pod", name, context.names.namespace)
    if hindrance(context.body, pod, "Pod", name) is not None:  # somebody else's has the name
        context.memory.tried = key
        return
    outcome = await _outcome(context, pod, key)
    if outcome is None:
        await _end(context)
        context.memory.tried = key
        return
    text = f"The image {new_spec.image} {outcome.message}"
    context.image = replace(outcome, message=f"{text.rstrip('.')}. The running pods keep {before.image}.")
    context.spec = before


async def _before(context: ReconcileContext) -> StreamSpec | None:
    """The spec with the image that a job runs with, if that is another one; None if none does."""
    for job in PARTS:
        name = context.names.driver(job)
        pod = await context.environment.cluster.get("Pod", name, context.names.namespace)
        if pod is None or hindrance(context.body, pod, "Pod", name) is not None or _is_over(pod):
            continue
        spec = pod.get("spec", {})
        first: Object = next(iter(spec.get("containers") or []), {})
        secrets = tuple(each["name"] for each in spec.get("imagePullSecrets") or ())
        image, policy = first.get("image", ""), first.get("imagePullPolicy") or context.spec.image_pull_policy
        found = replace(context.spec, image=image, image_pull_policy=policy, image_pull_secrets=secrets)
        if image and image != context.spec.image:
            return found
    return None


def _is_over(pod: Object) -> bool:
    return records.part(pod, "status").get("phase") in ("Failed", "Succeeded")


async def _outcome(context: ReconcileContext, pod: Object | None, key: str) -> Failure | None:
    """What is known of the image so far; None if it may be used, or cannot be tried."""
    trying = Failure("TryingImage", "is being tried")
    if pod is None:
        return trying if await _begin(context) else None
    annotations = records.part(records.part(pod, "metadata"), "annotations")
    if "deletionTimestamp" in pod["metadata"]:
        return trying
    if annotations.get(HASH_ANNOTATION) != key:  # of another image
        await _end(context)
        return trying
    if records.part(pod, "status").get("phase") == "Succeeded":
        return None
    pod_report = report(pod, context.now, manifests.TRIAL_CONTAINER, await events_of(context, pod))
    if pod_report.state == "failed":
        why = "it has ended" if pod_report.failure is None else pod_report.failure.message
        return Failure(_IMAGE, f"cannot be used: {_line(why)}", "slow")
    if pod_report.state == "running" and pod_report.started is not None and context.now - pod_report.started > _AT_WORK:
        return Failure(_IMAGE, "cannot be used: the command spatialstream --version does not terminate", "slow")
    if pod_report.failure is None:
        return trying
    if pod_report.failure.reason in ("Unschedulable", "NotScheduled", "SchedulingGated"):
        made = records.moment(pod["metadata"], "creationTimestamp")
        return None if made is not None and context.now - made > _WITHOUT_NODE else trying
    if pod_report.state == "stuck":
        return Failure(
            _IMAGE, f"cannot be used: {pod_report.failure.reason}: {_line(pod_report.failure.message)}", "slow"
        )
    return Failure("TryingImage", f"is being tried: {_line(pod_report.failure.message)}")


async def _begin(context: ReconcileContext) -> bool:
    """Make the pod; False if that is refused."""
    uid = context.body["metadata"]["uid"]
    try:
        await context.environment.cluster.create(manifests.trial_pod(context.spec, context.names, uid))
    except ApiError as error:
        if not error.is_hindered:
            raise
        return False
    return True


async def _end(context: ReconcileContext) -> None:
    """Remove the pod, if there is one of the stream's."""
    name = context.names.trial
    pod = await context.environment.cluster.get("Pod", name, context.names.namespace)
    if (
        pod is not None
        and hindrance(context.body, pod, "Pod", name) is None
        and "deletionTimestamp" not in pod["metadata"]
    ):
        await context.environment.cluster.delete("Pod", name, context.names.namespace)


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
