"""A client that cannot import Tiepoint sends a job without an estimate; the need is found on the way."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tasks.feature_memory import ESTIMATES
from tasks.feature_sets import FEATURE_KINDS, features_key
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import Store
from tests.integration import stock_process
from tests.integration.conftest import Cluster, wait_until
from tests.unit.tasks.photo_builders import photo_in_store, textured
from worker import keys

MIB = 1 << 20
RESERVE_BYTES = 512 * MIB
"""Of a small dedicated node."""
SIDES_PX: dict[Extractor, int] = {"orb": 7200, "sift": 2500}
"""Of a photo that needs more than the kind's default, and not more than the larger node has."""


@pytest.fixture
def store(cluster: Cluster) -> Store:
    """Return the cluster's store."""
    store = Store(cluster.folder / "store", [cluster.folder])
    store.create()
    return store


def large_photo(store: Store, folder: Path, side_px: int) -> str:
    """Bring a large photo into the store; return its content hash."""
    small = Image.fromarray(textured(side_px // 10, side_px // 10))
    small.resize((side_px, side_px), Image.Resampling.NEAREST).save(folder / "large.jpg")
    return photo_in_store(store, folder, (folder / "large.jpg").read_bytes())


@pytest.mark.parametrize("extractor", SIDES_PX)
def test_a_job_that_needs_more_than_its_kinds_default_says_so_and_is_done(
    cluster: Cluster, store: Store, extractor: Extractor
) -> None:
    """A node with room for the default only answers with the need; a larger one then does the job."""
    parameters = FeatureParameters(extractor=extractor, max_image_size_px=8000)
    content = large_photo(store, cluster.folder, SIDES_PX[extractor])
    default_bytes = ESTIMATES[extractor].memory_bytes(1)
    cluster.start_worker("small", memory_bytes=RESERVE_BYTES + default_bytes + 64 * MIB, cpus=1)
    kind = FEATURE_KINDS[extractor]
    arguments = json.dumps({"image": content, "max_image_size_px": parameters.max_image_size_px})
    stock_process.send(cluster.broker_url, kind, arguments, cluster.folder / "packages")
    wait_until(lambda: cluster.server.zcard(keys.large(kind)), "it is set aside with its need")
    entries: Any = cluster.server.zrange(keys.large(kind), 0, -1, withscores=True)
    needed_bytes = int(entries[0][1])
    cluster.start_worker("large", memory_bytes=4096 * MIB, cpus=1)
    wait_until(lambda: store.has(features_key(content, parameters)), "the larger node has done it")

    assert needed_bytes > default_bytes
    assert store.read(features_key(content, parameters)).arrays["keypoints"].shape[0] > 100
    assert cluster.dead() == []


def test_the_stock_process_has_no_tiepoint(tmp_path: Path) -> None:
    """Or the test above would show nothing: with ours beside Celery it refuses to send."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "tasks.py").write_text("")

    with pytest.raises(RuntimeError, match="tasks can be imported"):
        stock_process.send("redis://127.0.0.1:1/0", "noop", "{}", tmp_path / "packages")
