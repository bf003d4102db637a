-- Put before a script that a server with a full memory must not refuse.
-- Redis refuses a script's first write if that may take memory, and nothing after a write that takes none: this one,
-- which changes nothing (no incarnation has an empty name). `#!lua flags=allow-oom` would say it, from Redis 7 on.
redis.call('ZREM', 'tiepoint:leases', '')
