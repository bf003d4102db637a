"""Predicts how long jobs take on this node, and learns by how much a profile is wrong here.

Integers only: times in nanoseconds or microseconds, factors in millionths. The
same inputs give the same plan on every machine, bit for bit.
"""
