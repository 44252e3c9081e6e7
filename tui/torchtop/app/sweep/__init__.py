"""The screen of a sweep: its table as it fills, and where throughput is lost."""
