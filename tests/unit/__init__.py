"""Fast tests of one module each: no sockets, no sleep, no real clock."""
