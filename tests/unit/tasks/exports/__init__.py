"""Tests of tasks/exports."""
