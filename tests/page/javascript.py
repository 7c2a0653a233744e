"""Runs the page's JavaScript in Node, on JSON from Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from vauban.page.document import PROOFS

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node on this machine: the page's proofs are not tried")


def run(body: str, value: Any) -> Any:
    """What the JavaScript `body` returns, with `value` as its `given`."""
    code = f"{PROOFS}\nconst V = globalThis.Vauban;\n(async () => {{\nconst given = JSON.parse(require('fs').readFileSync(0));\n"
    code += f"const result = await (async () => {{ {body} }})();\nprocess.stdout.write(JSON.stringify(result));\n}})();"
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--input-type=commonjs", "-e", code],
        input=json.dumps(value),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
