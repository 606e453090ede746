"""The ConfigMap with the files that the drivers read."""

from __future__ import annotations

import yaml

from spatialstream_operator.commands import EXECUTOR_TEMPLATES, STOP_WORDS
from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.manifests.pods import executor_template
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec

__all__ = ["config_map"]


def config_map(spec: StreamSpec, names: StreamNames, uid: str) -> Manifest:
    """The pod templates of executors, and the stop words."""
    templates = {
        file: yaml.safe_dump(executor_template(spec, names, job), sort_keys=True)
        for job, file in EXECUTOR_TEMPLATES.items()
        if spec.job(job).executors is not None
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(names, names.config, uid),
        "data": {**templates, STOP_WORDS: "".join(f"{word}\n" for word in spec.terms.stop_words)},
    }
