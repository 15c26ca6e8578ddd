"""Ends with 0 if the node in this container serves clients: see docs/metrics.md. The reason is printed."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

host, _, port = os.environ.get("KAFKA_PYKRAFT_HTTP_LISTENER", "127.0.0.1:9464").rpartition(":")
if host in ("0.0.0.0", "[::]"):  # every address, this one among them
    host = "127.0.0.1"
try:
    with urllib.request.urlopen(f"http://{host}:{port}/readyz", timeout=4) as answer:
        print(answer.read().decode().strip())
except urllib.error.HTTPError as refusal:
    sys.exit(refusal.read().decode().strip())
except OSError as error:
    sys.exit(str(error))
