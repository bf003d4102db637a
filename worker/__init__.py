"""The governed Celery worker: claims, runs and settles jobs; the command line."""
