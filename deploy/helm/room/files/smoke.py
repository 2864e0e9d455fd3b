# What `helm test` runs, with what the image has. Services answer on their public ports.
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request


def answer(url, body=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=10) as found:
            return found.status
    except urllib.error.HTTPError as error:
        return error.code


failed = False


def check(what, right):
    global failed
    failed = failed or not right
    print("ok  " if right else "FAIL", what, flush=True)


if "INGEST" in os.environ:
    # A wrong token gets the answer that a right one gets, and is not published.
    check("ingest answers a webhook", answer(os.environ["INGEST"] + "/webhooks/" + "0" * 64, b"{}") == 200)
if "ADMIN" in os.environ:
    check("admin asks for a token", answer(os.environ["ADMIN"] + "/api/v1/instances") == 401)
if "SOURCE_URL" in os.environ:
    payload = pathlib.Path("/tmp/event.json")
    payload.write_text('{"event": "helm test"}')
    line = ["room", "send", os.environ["SOURCE_URL"], "--type", os.environ["SOURCE_TYPE"], "--file", str(payload)]
    if os.environ.get("SOURCE_SECRET"):
        line += ["--secret-env", "SOURCE_SECRET"]
    check("a signed event is taken", subprocess.run(line).returncode == 0)
sys.exit(failed)
