"""Tests of the project store."""
