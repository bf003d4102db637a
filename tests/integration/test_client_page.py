"""The example of docs/python-client.md does what it says, on a real node."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tasks.store import Store
from tests.integration.conftest import REPOSITORY, Cluster

PAGE = REPOSITORY / "docs" / "python-client.md"


def example(**replaced: str) -> str:
    """Return the page's first example, with these texts in place of its own."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    for old, new in replaced.items():
        old_text = {
            "broker": "redis://nas:6379/0",
            "photos": "/mnt/nas/photos/castle",
            "store": "/mnt/nas/tiepoint",
        }[old]
        assert old_text in code
        code = code.replace(old_text, new)
    return str(code)


def photos_in(folder: Path) -> Path:
    """Make a folder of small photos."""
    folder.mkdir(parents=True)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (64, 64), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return folder


def test_the_example_runs_as_it_stands(cluster: Cluster) -> None:
    """It submits, watches to the end, and prints what the project has come to."""
    store = Store(cluster.folder / "store")
    store.create()
    photos = photos_in(store.root / "castle")
    cluster.start_worker()
    code = example(broker=cluster.broker_url, photos=str(photos), store=str(store.root))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, cwd=cluster.folder
    )

    assert done.returncode == 0, done.stderr
    assert "done 0\n" in done.stdout
    assert "'imported': 3" in done.stdout
