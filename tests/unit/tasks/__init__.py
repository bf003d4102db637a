"""Unit tests of ``tasks``."""
