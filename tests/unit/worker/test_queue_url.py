"""The queue's URL says the same to every library that reads it."""

import ssl

import pytest

from worker.queue_url import checked_url, tls_options

CA = f"ssl_ca_certs={__file__}"
"""A file that is there; nobody reads it yet."""


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("redis://nas:6379/0", "redis://nas:6379/0"),
        ("redis://nas", "redis://nas"),
        ("redis://nas:6379/", "redis://nas:6379/"),
        ("redis+socket:///run/r.sock", "redis+socket:///run/r.sock"),
        ("rediss://u:p@nas:6379/0", "rediss://u:p@nas:6379/0?ssl_cert_reqs=required"),
        (f"rediss://nas/0?{CA}", f"rediss://nas/0?{CA}&ssl_cert_reqs=required"),
        ("rediss://nas/0?", "rediss://nas/0?ssl_cert_reqs=required"),
        ("rediss://nas/0?ssl_cert_reqs=none", "rediss://nas/0?ssl_cert_reqs=none"),
    ],
)
def test_tls_checks_certificates_unless_it_is_told_not_to(url: str, checked: str) -> None:
    """Celery's transport would not."""
    assert checked_url(url) == checked
    assert checked_url(checked) == checked


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("amqp://nas", "redis://, rediss:// or"),
        ("redis://nas:port/0", "the port is no number"),
        ("redis://nas:6379/main", "the database is a number"),
        ("redis://nas:6379/0/1", "the database is a number"),
        ("redis://nas:6379/?db=1", "the database is a number"),
        ("redis+socket:///run/r.sock?virtual_host=1", "the database is a number"),
        ("redis://nas/0?ssl_ca_certs=/ca.crt", "for rediss:// URLs"),
        ("rediss://nas/0?ssl_ca_cert=/ca.crt", "ssl_ca_cert: options of TLS are ssl_ca_certs"),
        ("rediss://nas/0?ssl_ca_certs=/no/ca.crt", "ssl_ca_certs: /no/ca.crt is not a file"),
        ("rediss://nas/0?ssl_cert_reqs=CERT_NONE", "one of none, optional, required"),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, reason: str) -> None:
    """With what would make sense."""
    with pytest.raises(ValueError, match=reason):
        checked_url(url)


def test_flower_is_told_the_same_as_the_others() -> None:
    """It reads no URL for that."""
    url = checked_url(f"rediss://nas/0?{CA}")

    assert tls_options(url) == {"ssl_ca_certs": __file__, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    assert tls_options("redis://nas/0") is None
