"""Tests with a real Redis-compatible server and real Celery workers."""
