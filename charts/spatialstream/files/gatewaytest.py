"""Checks the gateway from within, as the operator's service account; run by `helm test`.

It checks that the gateway accepts requests, that it rejects requests without a valid token and, if tokens are reviewed
by the cluster, that it authenticates the operator, which registers queries through it. It prints every result, and
exits with status 1 if one is wrong.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCESS = Path(os.environ["ACCESS"])


def status(path, token=None, known=True):
    """The status of the response to a GET.

    Args:
        path: the requested path.
        token: the bearer token; None: none.
        known: whether to verify the gateway's certificate, if it has one; unnecessary if no token is sent.
    """
    authority = ACCESS / "ca.crt"
    context = ssl.create_default_context(cafile=authority if authority.exists() else None)
    if not known:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        request = urllib.request.Request(os.environ["URL"] + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def checks():
    """The checks: description, function and expected result."""
    yield "the gateway takes requests", lambda: status("/ready", known=False), 200
    yield "it lets in nobody without a token", lambda: status("/streams", known=False), 401
    yield "it lets in nobody with a token of nobody", lambda: status("/streams", "nobody's", known=False), 401
    if os.environ["REVIEWED"]:
        yield "it lets in the operator", lambda: status("/streams", (ACCESS / "token").read_text()), 200


def main():
    """Run all checks, print their results, and exit with status 1 if one is wrong."""
    wrong = 0
    for text, answer, right in checks():
        try:
            found = answer()
        except (OSError, ValueError) as error:
            found = error
        wrong += found != right
        sys.stdout.write(f"{'ok   ' if found == right else 'WRONG'} {text}: {found}\n")
    sys.exit(1 if wrong else 0)


main()
