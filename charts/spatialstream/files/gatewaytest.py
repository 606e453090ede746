"""Checks the gateway from within, as the operator's service account; run by `helm test`.

It asks whether the gateway takes requests, whether it lets in nobody without a token that it knows, and, where the
cluster says whose a token is, whether it knows the operator, which registers queries by it. It prints every answer, and
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
    """The status of the answer to a GET.

    Args:
        path: what is asked for.
        token: who asks.
        known: whether the gateway has to be known by its certificate, if it has one; who shows no token need not care.
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
    """The queries, with the answer that is right."""
    yield "the gateway takes requests", lambda: status("/ready", known=False), 200
    yield "it lets in nobody without a token", lambda: status("/streams", known=False), 401
    yield "it lets in nobody with a token of nobody", lambda: status("/streams", "nobody's", known=False), 401
    if os.environ["REVIEWED"]:
        yield "it lets in the operator", lambda: status("/streams", (ACCESS / "token").read_text()), 200


def main():
    """Ask everything, print what was found, and fail if anything is wrong."""
    wrong = 0
    for query, answer, right in checks():
        try:
            found = answer()
        except (OSError, ValueError) as error:
            found = error
        wrong += found != right
        sys.stdout.write(f"{'ok   ' if found == right else 'WRONG'} {query}: {found}\n")
    sys.exit(1 if wrong else 0)


main()
