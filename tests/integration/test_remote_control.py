"""What `celery control` promises is done, and what is not done is refused in a sentence."""

from tests.integration.conftest import Cluster, wait_until


def test_the_pool_grows_to_what_was_asked_for_and_shrinks_again(cluster: Cluster) -> None:
    """More children do not start more than the governor lets start."""
    worker = cluster.start_worker(cpus=1)
    grown = cluster.ask("pool_grow", n=2)
    wait_until(lambda: len(worker.children()) == 3, "there are three children")
    shrunk = cluster.ask("pool_shrink", n=2)
    wait_until(lambda: len(worker.children()) == 1, "there is one child")

    assert (grown, shrunk) == ({"ok": "pool will grow"}, {"ok": "pool will shrink"})


def test_what_a_governed_worker_does_not_do_is_refused(cluster: Cluster) -> None:
    """It would be silence, or a yes that means nothing."""
    cluster.start_worker(cpus=1)
    answers = {
        "pool_restart": cluster.ask("pool_restart"),
        "autoscale": cluster.ask("autoscale", max=4, min=1),
        "rate_limit": cluster.ask("rate_limit", task_name="noop", rate_limit="1/m"),
    }

    for number in (1, 2, 3):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log})
    wait_until(lambda: len(cluster.runs()) == 3, "jobs run as before")

    assert all("error" in answer for answer in answers.values()), answers
    assert "noop has no rate" in answers["rate_limit"]["error"]
