"""What every role shares: its life, its options, its waits, and the threads beside it."""
