"""Tests of governor/planning."""
