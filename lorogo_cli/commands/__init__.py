"""Development and operator commands: dev, status, health, trace, restore, config, pipeline, bench, chaos."""
