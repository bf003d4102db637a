"""The Lua scripts: one atomic operation on Redis per file."""
