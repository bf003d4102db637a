"""Tests of governor/simulation."""
