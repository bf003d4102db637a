"""Unit tests of ``worker``."""
