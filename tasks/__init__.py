"""Structure from motion as plain functions: job kinds, the project store, exports.

Knows no Celery and no Redis, and of ``governor`` only ``governor.model``.
"""
