"""The Spark session: Java, worker processes, tasks, progress, and packaging."""
