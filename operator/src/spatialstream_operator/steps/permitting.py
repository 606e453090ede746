"""Before anything else: whether a stream may say what it says, and use the Secrets that it names.

Of a Secret only the labels are read, never what it holds. One that may be used is asked about again after a minute, one
that may not with each reconciliation, so that a label counts at once.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from spatialstream_operator.cluster import ApiError
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.environment import Environment
from spatialstream_operator.permissions import Refusal, named_secrets, refusals, refuse
from spatialstream_operator.spec import StreamSpec

__all__ = ["check_permissions", "check_secrets"]

_AGAIN = 60_000
"""ms after which a Secret that may be used is asked about again."""


async def check_permissions(context: ReconcileContext) -> None:
    """Refuse what a stream may not say.

    Raises:
        SettingError: there is such a thing; names all of them, and who may allow them how.
    """
    environment = context.environment
    refuse(refusals(context.spec, environment.defaults.image, environment.permissions))
    await check_secrets(environment, context.names.namespace, context.spec, context.memory.secrets)


async def check_secrets(
    environment: Environment, namespace: str, spec: StreamSpec, known: MutableMapping[str, int] | None = None
) -> None:
    """Refuse Secrets that streams may not use, or that are not there: one that comes later would be used unseen.

    Args:
        environment: what the operator works with.
        namespace: of the stream.
        spec: of the stream.
        known: by name, when a Secret was last found to be one that may be used, in ms; is kept.

    Raises:
        SettingError: there is one; names all of them.
    """
    known = {} if known is None else known
    refused, now = list[Refusal](), environment.now()
    for path, name in named_secrets(spec):
        if environment.permissions.secrets.is_named(name) or now - known.get(name, now - _AGAIN) < _AGAIN:
            continue
        problem = await _problem(environment, namespace, name)
        if problem is None:
            known[name] = now
        else:
            known.pop(name, None)
            refused.append(Refusal(path, problem))
    refuse(refused)


async def _problem(environment: Environment, namespace: str, name: str) -> str | None:
    try:
        labels = await environment.cluster.labels("Secret", name, namespace)
    except ApiError as error:
        if not error.is_refusal:
            raise
        return (
            f"the operator has no permission to get the Secret {name}, so it cannot check its label: grant it, or "
            "add its name to the chart's streams.secrets"
        )
    if labels is None:
        return f"there is no Secret {name} in the namespace {namespace}"
    return environment.permissions.secrets.problem(name, labels)
