"""Work against its limit: who did how much, how long it took, how long it would take. `calls.work` is the way in."""
