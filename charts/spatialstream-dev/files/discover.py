"""Service discovery for Prometheus: pods annotated with prometheus.io/scrape, in the given namespaces.

Not every build of Prometheus has its own discovery for Kubernetes: the distribution's package has none. So this runs
beside it, queries the API server every few seconds, and writes a file for `file_sd_configs`.

    discover.py FILE SECONDS NAMESPACE...
"""

import json
import signal
import ssl
import sys
import time
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PREFIX = "prometheus.io/"


def pods(namespace):
    """The pods of a namespace, from the API server."""
    request = urllib.request.Request(
        f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/pods",
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"},
    )
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return json.load(answer)["items"]


def target(pod):
    """What Prometheus is told about a pod; None if it is not to be scraped, or cannot be yet."""
    metadata, status = pod["metadata"], pod["status"]
    notes = metadata.get("annotations", {})
    address = status.get("podIP")
    if notes.get(f"{PREFIX}scrape") != "true" or status.get("phase") != "Running" or not address:
        return None
    host = f"[{address}]" if ":" in address else address
    return {
        "targets": [f"{host}:{notes.get(f'{PREFIX}port', '80')}"],
        "labels": {
            "namespace": metadata["namespace"],
            "pod": metadata["name"],
            "__metrics_path__": notes.get(f"{PREFIX}path", "/metrics"),
        },
    }


def replace(path, text):
    """Write a file so that nobody reads half of it."""
    new = path.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.replace(path)


def main(path, seconds, namespaces):
    """Keep the file as the cluster is, until told to stop. What was known stays when the API server is away."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    written = None
    while True:
        try:
            found = [target(pod) for namespace in namespaces for pod in pods(namespace)]
            text = json.dumps([each for each in found if each], indent=1, sort_keys=True)
            if text != written:
                replace(path, text)
                written = text
        except (OSError, ValueError) as error:
            sys.stderr.write(f"pods cannot be listed: {error}\n")
        time.sleep(seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
