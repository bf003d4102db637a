"""Unit tests of ``governor``."""
