"""Holds the governed worker's app as the queue bench starts it: task events off, as a stock worker's are.

The bench turns them on in both workers at once, by remote control.
"""

from worker.app import app

app.conf.worker_send_task_events = False
