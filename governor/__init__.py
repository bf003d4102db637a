"""The resource governor of one machine: decides which job may start, and how large.

Knows no Celery, Redis, OpenCV or job name. See ``docs/governor.md``.
"""
