"""Reads the queue's URL: which there are, what they may say, and that TLS checks whom it speaks to.

Does not cover who connects (:mod:`worker.connections`, Celery).
"""

import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SCHEMES = ("redis://", "rediss://", "redis+socket://")
_TLS = "rediss://"
_TLS_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs"}
"""What redis-py and Celery's transport both understand, in the same way."""
_TLS_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_DATABASE = re.compile(r"(/[0-9]*)?")
_CHECKS = ("none", "optional", "required")


def checked_url(url: str) -> str:
    """Return a queue's URL as every connection takes it.

    Celery's transport checks no certificate unless it is told to, redis-py
    checks it unless it is told not to; the URL says it for both.

    Raises:
        ValueError: it is none; the text says why, and shows nothing of it.
    """
    if not url.startswith(SCHEMES):
        raise ValueError("the broker is a redis://, rediss:// or redis+socket:// URL")
    if not url.startswith("redis+socket://") and not _can_be_split(url):
        raise ValueError(
            "the port is no number from 0 to 65535; "
            "in a password write # as %23, / as %2F, ? as %3F, @ as %40, % as %25"
        )
    options = dict(parse_qsl(urlsplit(url).query))
    _check_database(url, options)
    _check_options(url, options)
    if not url.startswith(_TLS) or "ssl_cert_reqs" in options:
        return url
    joint = "" if url.endswith(("?", "&")) else "&" if "?" in url else "?"
    return f"{url}{joint}ssl_cert_reqs=required"


def tls_options(url: str) -> dict[str, Any] | None:
    """Return what a checked URL says of TLS, as Flower wants it besides; None where it is not used."""
    if not url.startswith(_TLS):
        return None
    options: dict[str, Any] = dict(parse_qsl(urlsplit(url).query))
    checks = options.pop("ssl_cert_reqs")
    return {**options, "ssl_cert_reqs": ssl.VerifyMode[f"CERT_{checks.upper()}"]}


def _check_database(url: str, options: dict[str, str]) -> None:
    """Check that every library reads the same database: redis-py takes 0 for what it does not understand."""
    path = "/" if url.startswith("redis+socket://") else urlsplit(url).path
    if not _DATABASE.fullmatch(path) or options.keys() & {"db", "virtual_host"}:
        raise ValueError("the database is a number behind the port: redis://HOST:6379/0")


def _check_options(url: str, options: dict[str, str]) -> None:
    named = {name for name in options if name.startswith("ssl")}
    if named and not url.startswith(_TLS):
        raise ValueError("options of TLS (ssl_...) are for rediss:// URLs")
    if unknown := sorted(named - _TLS_OPTIONS):
        raise ValueError(f"{', '.join(unknown)}: options of TLS are {', '.join(sorted(_TLS_OPTIONS))}")
    if options.get("ssl_cert_reqs", "required") not in _CHECKS:
        raise ValueError(f"ssl_cert_reqs is one of {', '.join(_CHECKS)}")
    # Later on it would look as if the server were missing.
    for name in sorted(named & _TLS_FILES):
        if not Path(options[name]).is_file():
            raise ValueError(f"{name}: {options[name]} is not a file")


def _can_be_split(url: str) -> bool:
    """Tell whether a URL's port can be read; the "#" of a password looks like the end of what is before."""
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        return False
    return not parts.fragment
