"""Holds the measured durations that come with this version (``reference.json``)."""
