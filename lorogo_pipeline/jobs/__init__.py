"""Jobs on a lake: ingest, materialise, export, erase, SQL, and fleet compaction."""
