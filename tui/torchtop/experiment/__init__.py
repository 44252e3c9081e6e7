"""Experiments: many sessions of one workload, measured alike, and what sets them apart."""
