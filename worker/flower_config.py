"""Holds Flower's configuration, in the language of its ``--conf`` file: each name is one of its options.

What ``tiepoint flower`` may be told is on Flower's command line
(:mod:`worker.flower_command`).
"""

from prometheus_client import REGISTRY

from worker.planning_metrics import PlanningCollector
from worker.settings import FlowerSettings, Settings

users = FlowerSettings.checked().users
if users:
    basic_auth = users

# Without a password any page that is open in a browser of this machine could press the
# buttons: the browser sends the request, and Flower cannot know whose it is.
read_only = not users

# Flower's page /metrics tells what is registered here.
REGISTRY.register(PlanningCollector(Settings.checked().redis_url))

# Jobs are kept in memory and nowhere else.
persistent = False
