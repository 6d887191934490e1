"""How data travels: schedules, lanes, shards, unfinished copies."""
