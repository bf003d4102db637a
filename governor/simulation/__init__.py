"""Runs the planner under virtual time: streams of jobs on one slot, the same bits on every machine."""
