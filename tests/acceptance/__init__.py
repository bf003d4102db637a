"""Tests of whole projects over real photos, with killed processes."""
