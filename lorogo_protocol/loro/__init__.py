"""The border to Loro: replicas, encodings, versions, and presence."""
